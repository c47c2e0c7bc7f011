/* An attacker in a cell with two threads: one changes what a call is about while the other makes the call.
 *
 * usage: race KIND TIMES HARMLESS PROTECTED   both are names of files that may or may not exist, beside each other's
 *        folders: the harmless one may be written, the protected one may not
 *
 * Trust domain: none; it runs in jails, for tests/jail/test_names_calls.py. What was granted is told by what lies in
 * the protected folder afterwards: here a grant may be that of the harmless name. At the end it looks for a folder's
 * descriptor that lies on a writable mount, prints "WRITABLE n" for each, and "DONE granted of tried".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK "CELL was here\n"
#define HELD 300 /* the number of the descriptor that is exchanged */

static char paths[2][512], folders[2][512], bases[2][256];
static char shared[512];
static struct sockaddr_un address;
static atomic_bool over;
static int held[2];
static unsigned long granted, tried;

static void mark(int fd)
{
	tried++;
	if (fd < 0)
		return;
	granted++;
	(void)!write(fd, MARK, sizeof(MARK) - 1);
	close(fd);
}

static void count(int r)
{
	tried++;
	granted += r == 0;
}

/* ---- what is changed ---- */

static void swap_text(int which)
{
	/* Byte by byte, so that a reader also sees halves. */
	for (size_t i = 0; i <= strlen(paths[which]); i++)
		((volatile char *)shared)[i] = paths[which][i];
}

static void swap_fd(int which)
{
	dup2(held[which], HELD);
}

static void swap_cwd(int which)
{
	(void)!fchdir(held[which]);
}

static void swap_link(int which)
{
	unlink("cell-next");
	if (symlink(folders[which], "cell-next") == 0)
		rename("cell-next", "cell-swapped");
}

/* A folder of ours and a link to the protected one take the same name in turn. */
static void swap_folder(int which)
{
	if (which == 0) {
		unlink("cell-turn");
		rename("cell-real", "cell-turn");
	} else {
		rename("cell-turn", "cell-real");
		(void)!symlink(folders[1], "cell-turn");
	}
}

static void swap_address(int which)
{
	for (size_t i = 0; i <= strlen(paths[which]); i++)
		((volatile char *)address.sun_path)[i] = paths[which][i];
}

/* ---- what is called ---- */

static void all_calls(int dir, const char *name)
{
	int fd;

	mark(openat(dir, name, O_WRONLY | O_NONBLOCK));
	mark(openat(dir, name, O_WRONLY | O_CREAT | O_NONBLOCK, 0700));
	mark(openat(dir, name, O_RDONLY | O_TRUNC | O_NONBLOCK));
	count(mkdirat(dir, name, 0700));
	count(unlinkat(dir, name, AT_REMOVEDIR));
	count(symlinkat("cell-nowhere", dir, name));
	count(unlinkat(dir, name, 0));
	fd = open("cell-source", O_WRONLY | O_CREAT, 0700);
	mark(fd);
	count(linkat(AT_FDCWD, "cell-source", dir, name, 0));
	count(renameat(AT_FDCWD, "cell-source", dir, name));
	count(fchmodat(dir, name, 0711, 0));
	unlink("cell-source");
}

static void call_by_path(void)
{
	all_calls(AT_FDCWD, shared);
	count(truncate(shared, 1));
	count(chmod(shared, 0755));
}

static void call_by_dirfd(void)
{
	all_calls(HELD, bases[1]);
}

static void call_by_cwd(void)
{
	mark(open(bases[1], O_WRONLY | O_CREAT | O_NONBLOCK, 0700));
	count(mkdir("raced", 0700));
	count(rename("cell-in-cwd", bases[1]));
	mark(open("cell-in-cwd", O_WRONLY | O_CREAT, 0700));
}

static void call_by_link(void)
{
	char name[600];

	snprintf(name, sizeof(name), "cell-swapped/%s", bases[1]);
	all_calls(AT_FDCWD, name);
}

static void call_by_folder(void)
{
	char name[600];

	snprintf(name, sizeof(name), "cell-turn/%s", bases[1]);
	all_calls(AT_FDCWD, name);
}

static void call_by_open_path(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", HELD);
	mark(open(name, O_WRONLY | O_NONBLOCK));
	mark(open(name, O_RDONLY | O_TRUNC | O_NONBLOCK));
	count(truncate(name, 1));
	count(linkat(AT_FDCWD, name, AT_FDCWD, "cell-alias", AT_SYMLINK_FOLLOW));
	count(unlink("cell-alias"));
}

static void connect_once(int type)
{
	int fd = socket(AF_UNIX, type, 0);

	count(connect(fd, (struct sockaddr *)&address, sizeof(address)));
	(void)!send(fd, MARK, sizeof(MARK) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)!sendto(fd, MARK, sizeof(MARK) - 1, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address,
		      sizeof(address));
	close(fd);
}

static void call_connect(void)
{
	connect_once(SOCK_STREAM);
	connect_once(SOCK_SEQPACKET);
	connect_once(SOCK_DGRAM);
}

static const struct {
	const char *name;
	void (*swap)(int which);
	void (*call)(void);
	int flags; /* of held: of the folders, or of the files where O_PATH alone */
} kinds[] = { { "path", swap_text, call_by_path, 0 },
	      { "dirfd", swap_fd, call_by_dirfd, O_RDONLY | O_DIRECTORY },
	      { "dirfd-path", swap_fd, call_by_dirfd, O_PATH | O_DIRECTORY },
	      { "cwd", swap_cwd, call_by_cwd, O_RDONLY | O_DIRECTORY },
	      { "link", swap_link, call_by_link, 0 },
	      { "folder", swap_folder, call_by_folder, 0 },
	      { "o-path", swap_fd, call_by_open_path, O_PATH },
	      { "address", swap_address, call_connect, 0 } };
#define N(a) (sizeof(a) / sizeof((a)[0]))

static void *changes(void *kind)
{
	for (unsigned n = 0; !over; n++)
		kinds[*(size_t *)kind].swap((int)(n & 1));
	kinds[*(size_t *)kind].swap(0);
	return NULL;
}

static void take_apart(int which, const char *path)
{
	char copy[512];

	snprintf(paths[which], sizeof(paths[which]), "%s", path);
	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(bases[which], sizeof(bases[which]), "%s", basename(copy));
	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(folders[which], sizeof(folders[which]), "%s", dirname(copy));
}

/* Through a folder on a writable mount one would write without being judged. */
static void look_for_folders(void)
{
	for (int fd = 0; fd < 1024; fd++) {
		struct statvfs fs;
		struct stat st;

		if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode) || fstatvfs(fd, &fs) < 0)
			continue;
		if (!(fs.f_flag & ST_RDONLY))
			printf("WRITABLE %d\n", fd);
	}
}

int main(int argc, char **argv)
{
	unsigned long times = argc > 4 ? strtoul(argv[2], NULL, 10) : 0;
	size_t kind = 0;
	pthread_t other;

	while (kind < N(kinds) && (argc < 5 || strcmp(argv[1], kinds[kind].name) != 0))
		kind++;
	if (kind == N(kinds)) {
		fprintf(stderr, "usage: race KIND TIMES HARMLESS PROTECTED\n");
		return 2;
	}
	address.sun_family = AF_UNIX;
	take_apart(0, argv[3]);
	take_apart(1, argv[4]);
	mkdir("cell-real", 0700);
	for (int i = 0; i < 2 && kinds[kind].flags != 0; i++) {
		held[i] = open(kinds[kind].flags == O_PATH ? paths[i] : folders[i], kinds[kind].flags | O_CLOEXEC);
		if (held[i] < 0) {
			perror(paths[i]);
			return 2;
		}
	}
	kinds[kind].swap(0);
	if (pthread_create(&other, NULL, changes, &kind) != 0)
		return 2;
	for (unsigned long n = 0; n < times; n++)
		kinds[kind].call();
	over = true;
	pthread_join(other, NULL);
	look_for_folders();
	printf("DONE %lu of %lu\n", granted, tried);
	return 0;
}
