/* In the place of guest/copier/enter.c, for tests without a jail: a copy by fork, which gets its fds and its folder,
 * and enters nothing. */
#include <cellblock/twin.h>
#include <cellblock/warm.h>
#include <cellblock/wire.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copier.h"

#define HIGH 900

static const struct {
	int from, to;
} places[] = { { CB_WARM_STDOUT, 1 },	    { CB_WARM_STDERR, 2 },   { CB_WARM_WIRE, 3 }, { CB_WARM_LOG, 4 },
	       { CB_WARM_TWIN_CONTROL, 5 }, { CB_WARM_REGISTRY, 6 }, { CB_WARM_SIDE, 7 } };

__attribute__((visibility("default"))) long cb_copier_enter(int64_t a[CB_ENTER_FIELDS])
{
	struct cb_warm_answer answer = { .step = CB_WARM_STEP_READY };
	struct cb_registry_msg registration = { 0 };
	const char *cwd = (const char *)a[CB_ENTER_CWD];
	pid_t pid;
	char go;

	if (access(cwd, X_OK) < 0) {
		a[CB_ENTER_STEP] = CB_WARM_STEP_NAMESPACES;
		return -errno;
	}
	pid = fork();
	if (pid != 0)
		return pid < 0 ? -errno : 1;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (a[CB_ENTER_FDS + places[i].from] >= 0)
			dup2(a[CB_ENTER_FDS + places[i].from], HIGH + places[i].to);
	dup2(a[CB_ENTER_CONNECTION], HIGH);
	for (int fd = 1; fd < HIGH; fd++)
		close(fd);
	for (int fd = 1; fd <= CB_GUEST_FD_SIDE; fd++) {
		if (dup3(HIGH + fd, fd, fd > 2 ? O_CLOEXEC : 0) < 0)
			open("/dev/null", O_RDWR | (fd > 2 ? O_CLOEXEC : 0)); /* gets this number */
		close(HIGH + fd);
	}
	umask(a[CB_ENTER_UMASK]);
	setsid();
	if (chdir(cwd) < 0 || send(CB_GUEST_FD_REGISTRY, &registration, sizeof registration, 0) < 0 ||
	    send(HIGH, &answer, sizeof answer, 0) < 0 || read(HIGH, &go, 1) != 1)
		_exit(1);
	close(HIGH);
	return 0;
}
