/* An attacker in a cell: tries, over and over, every call that could write a protected name, while the host saves it.
 *
 * usage: spin STOP NAME…   until the file STOP is there; a NAME that ends in '/' stands for the folder itself
 *
 * Trust domain: none; it runs in jails, for tests/jail/test_names.py, which compiles it. All that it makes in its own
 * right is named cell-…; what it writes begins with CELL. Prints "WON call name times" for what was granted, at the end
 * "ROUNDS n", which the length of cell-rounds says meanwhile: a name that is protected is never granted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK "CELL was here\n"
#define MAX_NAMES 128

static char alias[64];
static unsigned long count;

static const char *own(const char *kind)
{
	snprintf(alias, sizeof(alias), "cell-%s-%d-%lu", kind, (int)getpid(), count++);
	return alias;
}

static bool mark(int fd)
{
	if (fd < 0)
		return false;
	(void)!write(fd, MARK, sizeof(MARK) - 1);
	close(fd);
	return true;
}

static const char *own_file(void)
{
	const char *name = own("source");

	mark(open(name, O_WRONLY | O_CREAT, 0700));
	return name;
}

/* Each takes a name and says whether it was granted. */

static bool open_write(const char *name)
{
	return mark(open(name, O_WRONLY | O_NONBLOCK));
}

static bool open_read_write(const char *name)
{
	return mark(open(name, O_RDWR | O_NONBLOCK));
}

static bool open_append(const char *name)
{
	return mark(open(name, O_WRONLY | O_APPEND | O_NONBLOCK));
}

static bool open_trunc(const char *name)
{
	return mark(open(name, O_RDONLY | O_TRUNC | O_NONBLOCK));
}

static bool open_creat(const char *name)
{
	return mark(open(name, O_WRONLY | O_CREAT | O_NONBLOCK, 0700));
}

static bool open_exclusive(const char *name)
{
	return mark(open(name, O_WRONLY | O_CREAT | O_EXCL, 0700));
}

static void on_alarm(int number)
{
	(void)number;
}

/* It would wait at a named pipe, which only an attack that won has put there. */
static bool call_creat(const char *name)
{
	struct sigaction action = { .sa_handler = on_alarm };
	bool won;

	sigaction(SIGALRM, &action, NULL);
	alarm(2);
	won = mark(creat(name, 0700));
	alarm(0);
	return won;
}

/* A descriptor that was opened to read becomes one to write. */
static bool again_by_proc(const char *name)
{
	char path[64];
	int fd = open(name, O_RDONLY | O_NONBLOCK);
	bool won;

	if (fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	won = mark(open(path, O_WRONLY | O_NONBLOCK));
	close(fd);
	return won;
}

static bool again_by_path_fd(const char *name)
{
	char path[64];
	int fd = open(name, O_PATH | O_NOFOLLOW);
	bool won;

	if (fd < 0)
		return false;
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	won = mark(open(path, O_WRONLY | O_NONBLOCK));
	close(fd);
	return won;
}

static bool shared_mapping(const char *name)
{
	int fd = open(name, O_RDONLY | O_NONBLOCK);
	bool won = false;
	char *p;

	if (fd < 0)
		return false;
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		won = true;
		munmap(p, 4096);
	}
	close(fd);
	return won;
}

static bool rename_over(const char *name)
{
	const char *source = own_file();
	bool won = rename(source, name) == 0;

	unlink(source);
	return won;
}

static bool rename_away(const char *name)
{
	return rename(name, own("moved")) == 0;
}

static bool link_to(const char *name)
{
	const char *source = own_file();
	bool won = link(source, name) == 0;

	unlink(source);
	return won;
}

static bool link_from(const char *name)
{
	return link(name, own("alias")) == 0;
}

static bool link_from_fd(const char *name)
{
	char path[64];
	int fd = open(name, O_PATH | O_NOFOLLOW);
	bool won;

	if (fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	won = linkat(AT_FDCWD, path, AT_FDCWD, own("alias"), AT_SYMLINK_FOLLOW) == 0;
	close(fd);
	return won;
}

static bool cut(const char *name)
{
	return truncate(name, 3) == 0;
}

static bool change_mode(const char *name)
{
	return chmod(name, 0777) == 0;
}

static bool change_mode_by_fd(const char *name)
{
	int fd = open(name, O_RDONLY | O_NONBLOCK);
	bool won = fd >= 0 && fchmod(fd, 0777) == 0;

	if (fd >= 0)
		close(fd);
	return won;
}

static bool change_times(const char *name)
{
	return utimensat(AT_FDCWD, name, NULL, 0) == 0;
}

static bool take_away(const char *name)
{
	return unlink(name) == 0;
}

static bool make_symlink(const char *name)
{
	return symlink("cell-target", name) == 0;
}

static bool make_folder(const char *name)
{
	return mkdir(name, 0777) == 0;
}

static bool make_fifo(const char *name)
{
	return mknod(name, S_IFIFO | 0666, 0) == 0;
}

static bool make_socket(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bool won;

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", name);
	won = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return won;
}

static bool remove_folder(const char *name)
{
	return rmdir(name) == 0;
}

static bool through_a_symlink(const char *name)
{
	const char *link = own("symlink");
	bool won;

	if (symlink(name, link) < 0)
		return false;
	won = mark(open(link, O_WRONLY | O_NONBLOCK));
	unlink(link);
	return won;
}

static const struct {
	const char *name;
	bool (*try)(const char *name);
} files[] = { { "open-write", open_write },
	      { "open-read-write", open_read_write },
	      { "open-append", open_append },
	      { "open-trunc", open_trunc },
	      { "open-creat", open_creat },
	      { "open-excl", open_exclusive },
	      { "creat", call_creat },
	      { "open-again-by-proc", again_by_proc },
	      { "open-again-by-dev-fd", again_by_path_fd },
	      { "map", shared_mapping },
	      { "rename-over", rename_over },
	      { "rename-away", rename_away },
	      { "link-to", link_to },
	      { "link-from", link_from },
	      { "link-from-fd", link_from_fd },
	      { "truncate", cut },
	      { "chmod", change_mode },
	      { "fchmod", change_mode_by_fd },
	      { "utimens", change_times },
	      { "unlink", take_away },
	      { "symlink", make_symlink },
	      { "mkdir", make_folder },
	      { "mkfifo", make_fifo },
	      { "bind", make_socket },
	      { "by-symlink", through_a_symlink } },
  folders[] = { { "rename-folder", rename_away }, { "chmod-folder", change_mode }, { "rmdir", remove_folder } };
#define N(a) (sizeof(a) / sizeof((a)[0]))

static unsigned long won[MAX_NAMES][N(files)];

static void round_of(char **names, int n)
{
	for (int i = 0; i < n && i < MAX_NAMES; i++) {
		size_t len = strlen(names[i]);

		if (names[i][len - 1] == '/') {
			char folder[256];

			snprintf(folder, sizeof(folder), "%.*s", (int)(len - 1), names[i]);
			for (size_t k = 0; k < N(folders); k++)
				won[i][k] += folders[k].try(folder);
			continue;
		}
		for (size_t k = 0; k < N(files); k++)
			won[i][k] += files[k].try(names[i]);
	}
}

int main(int argc, char **argv)
{
	unsigned long rounds = 0;
	int tally;

	umask(0);
	tally = open("cell-rounds", O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (argc < 3 || tally < 0 || !mark(open("cell-ready", O_WRONLY | O_CREAT, 0600))) {
		perror("spin: cell-ready");
		return 2;
	}
	do {
		round_of(argv + 2, argc - 2);
		rounds++;
		(void)!write(tally, ".", 1);
	} while (access(argv[1], F_OK) < 0);
	for (int i = 2; i < argc && i - 2 < MAX_NAMES; i++) {
		bool folder = argv[i][strlen(argv[i]) - 1] == '/';

		for (size_t k = 0; k < (folder ? N(folders) : N(files)); k++)
			if (won[i - 2][k] > 0)
				printf("WON %s %s %lu\n", folder ? folders[k].name : files[k].name, argv[i],
				       won[i - 2][k]);
	}
	printf("ROUNDS %lu\n", rounds);
	return 0;
}
