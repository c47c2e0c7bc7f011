/* Calls that change a folder, under a signal every millisecond: each happens once, and says so.
 *
 * usage: once TIMES [restart]   in an empty folder; with `restart` the handler is set with SA_RESTART
 *
 * Trust domain: none; it runs in jails, for tests/jail/test_names_calls.py. A call that is made twice is told by its
 * second answer (EEXIST, ENOENT); one that was not made although it said so, by the next call. EINTR is counted and
 * told: no file system of the kernel's answers it to these calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static unsigned long faults;

static void on_alarm(int number)
{
	(void)number;
	signals++;
}

/* A signal before the call has begun may end it, where its handler does not restart calls; then nothing was done. */
#define AGAIN(call)                                                                                                    \
	({                                                                                                             \
		int done;                                                                                              \
		do                                                                                                     \
			done = (call);                                                                                 \
		while (done < 0 && errno == EINTR);                                                                    \
		done;                                                                                                  \
	})

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	if (faults++ < 10)
		printf("WRONG %s: %s\n", what, strerror(errno));
}

static void make(const char *name, int flags, const char *what)
{
	int fd = AGAIN(open(name, flags, 0600));

	must(fd, what);
	if (fd >= 0) {
		must(write(fd, "x", 1) == 1 ? 0 : -1, "write");
		close(fd);
	}
}

static void bind_once(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);

	must(AGAIN(bind(fd, (struct sockaddr *)&address, sizeof(address))), "bind");
	must(listen(fd, 1), "listen");
	must(AGAIN(connect(client, (struct sockaddr *)&address, sizeof(address))), "connect");
	must(AGAIN(unlink("socket")), "unlink of a socket");
	close(client);
	close(fd);
}

static void turn(void)
{
	struct stat st;

	must(AGAIN(mkdir("folder", 0700)), "mkdir");
	make("folder/a", O_WRONLY | O_CREAT | O_EXCL, "open O_EXCL");
	make("folder/a", O_WRONLY | O_APPEND, "open O_APPEND");
	must(AGAIN(link("folder/a", "folder/b")), "link");
	must(AGAIN(rename("folder/b", "c")), "rename");
	must(AGAIN(symlink("c", "d")), "symlink");
	must(stat("d", &st), "stat");
	must(st.st_size == 2 && st.st_nlink == 2 ? 0 : -1, "two bytes, two names");
	must(AGAIN(truncate("c", 1)), "truncate");
	must(AGAIN(chmod("c", 0640)), "chmod");
	must(AGAIN(mknod("fifo", S_IFIFO | 0600, 0)), "mkfifo");
	must(AGAIN(unlink("fifo")), "unlink of a fifo");
	must(AGAIN(unlink("d")), "unlink");
	must(AGAIN(unlink("c")), "unlink");
	must(AGAIN(unlink("folder/a")), "unlink");
	must(AGAIN(rename("folder", "moved")), "rename of a folder");
	must(AGAIN(rmdir("moved")), "rmdir");
	bind_once();
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = argc > 2 ? SA_RESTART : 0 };
	struct itimerval every = { .it_interval = { .tv_usec = 1000 }, .it_value = { .tv_usec = 1000 } };
	unsigned long times = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (unsigned long n = 0; n < times && faults < 10; n++)
		turn();
	printf("DONE faults %lu signals %d\n", faults, signals > 0);
	return faults > 0;
}
