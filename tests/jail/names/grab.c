/* An attacker in a cell: of every file that it finds in a folder it opens one descriptor to write and makes one link,
 * and afterwards writes through all of them.
 *
 * usage: grab STOP FOLDER   until the file STOP is there
 *
 * Trust domain: none; it runs in jails, for tests/jail/test_names_saves.py, which compiles it. Other files than those
 * named cell-… are tried, each inode once; prints "OPENED n LINKED n".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "CELL was here\n"
#define HELD_MAX 900
#define SEEN_MAX 64 /* the last ones */

static int held[HELD_MAX];
static unsigned opened, linked;
static ino_t seen[SEEN_MAX];

static bool is_seen(ino_t ino)
{
	for (unsigned i = 0; i < SEEN_MAX; i++)
		if (seen[i] == ino)
			return true;
	return false;
}

static void grab(const char *folder, const struct dirent *e)
{
	char path[512], alias[64];
	bool got;
	int fd;

	if (e->d_type != DT_REG || strncmp(e->d_name, "cell-", 5) == 0 || is_seen(e->d_ino))
		return;
	snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
	snprintf(alias, sizeof(alias), "cell-alias%u", linked);
	got = link(path, alias) == 0;
	linked += got;
	fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && opened < HELD_MAX)
		held[opened++] = fd;
	else if (fd >= 0)
		close(fd);
	if (got || fd >= 0)
		seen[(opened + linked) % SEEN_MAX] = e->d_ino;
}

static void write_all(void)
{
	char alias[64];

	for (unsigned i = 0; i < opened; i++)
		(void)!pwrite(held[i], MARK, sizeof(MARK) - 1, 0);
	for (unsigned i = 0; i < linked; i++) {
		int fd;

		snprintf(alias, sizeof(alias), "cell-alias%u", i);
		fd = open(alias, O_WRONLY);
		if (fd < 0)
			continue;
		(void)!pwrite(fd, MARK, sizeof(MARK) - 1, 0);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 3 ? opendir(argv[2]) : NULL;
	int ready = open("cell-ready", O_WRONLY | O_CREAT, 0600);

	if (dir == NULL || ready < 0) {
		perror("grab: STOP FOLDER");
		return 2;
	}
	while (access(argv[1], F_OK) < 0) {
		const struct dirent *e;

		rewinddir(dir);
		while ((e = readdir(dir)) != NULL)
			grab(argv[2], e);
	}
	write_all();
	printf("OPENED %u LINKED %u\n", opened, linked);
	return 0;
}
