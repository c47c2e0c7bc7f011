/* Names of files and folders that are made for a while.
 *
 * Trust domain: all C programs, in one thread.
 */
#include <cellblock/unique_name.h>

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

void cb_unique_name(const char *prefix, char *ret_name, size_t size)
{
	static unsigned count;
	uint64_t random = 0;

	(void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
	snprintf(ret_name, size, "%s%d-%u-%016llx", prefix, (int)getpid(), ++count, (unsigned long long)random);
}
