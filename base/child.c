/* Waiting for one child.
 *
 * Trust domain: all C programs.
 */
#include <cellblock/child.h>

#include <errno.h>
#include <sys/wait.h>

int cb_reap(pid_t pid, int *ret_status)
{
	int status;
	pid_t r;

	if (pid <= 0) /* waitpid would take anybody */
		return -ECHILD;
	do
		r = waitpid(pid, &status, 0);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	if (ret_status != NULL)
		*ret_status = status;
	return 0;
}
