/* Takes all the processes that a jail may have, in its first moment, and then makes a file. */
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
	pid_t p;

	while ((p = fork()) > 0)
		;
	if (p == 0) {
		pause();
		return 0;
	}
	return open("cell-made", O_CREAT | O_WRONLY, 0600) < 0;
}
