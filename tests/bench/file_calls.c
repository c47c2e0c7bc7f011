/* Microseconds for a call on files in the current folder, for workspace.py: file_calls WHAT TIMES
 *
 * Role: benchmark, in C so that an interpreter's own share is not in the figure. Exit status 1 when a call failed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int opened(const char *name, int flags)
{
	int fd = open(name, flags, 0600);

	return fd < 0 ? -1 : close(fd);
}

static int write_open(void)
{
	return opened("f", O_WRONLY);
}

static int read_open(void)
{
	return opened("f", O_RDONLY);
}

static int create(void)
{
	return opened("g", O_WRONLY | O_CREAT | O_EXCL) < 0 ? -1 : unlink("g");
}

static int two_renames(void)
{
	return rename("f", "h") < 0 ? -1 : rename("h", "f");
}

static int folder(void)
{
	return mkdir("d", 0700) < 0 ? -1 : rmdir("d");
}

static int look(void)
{
	struct stat st;

	return stat("f", &st);
}

static int tmp_open(void)
{
	return opened("/tmp/cb-bench-f", O_WRONLY | O_CREAT);
}

static const struct {
	const char *name;
	int (*call)(void);
} whats[] = { { "write-open", write_open }, { "read-open", read_open }, { "create", create }, { "rename", two_renames },
	      { "mkdir", folder },	    { "stat", look },		{ "tmp-open", tmp_open } };

int main(int argc, char **argv)
{
	struct timespec from, to;
	size_t what = 0;
	int times, bad = 0;

	if (argc < 3 || opened("f", O_WRONLY | O_CREAT) < 0)
		return 2;
	while (what < sizeof(whats) / sizeof(*whats) && strcmp(argv[1], whats[what].name) != 0)
		what++;
	if (what == sizeof(whats) / sizeof(*whats))
		return 2;
	times = (int)strtol(argv[2], NULL, 10);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < times; i++)
		bad += whats[what].call() != 0;
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.3f\n", ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / times);
	return bad > 0;
}
