/* LD_PRELOAD, for OpenSSL: each process has the same number there, as copies of a zygote have in their jails. By it
 * OpenSSL tells a copy, and begins its random numbers anew. All others get the number of the process. */
#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) pid_t getpid(void)
{
	Dl_info who;

	if (dladdr(__builtin_return_address(0), &who) != 0 &&
	    (strstr(who.dli_fname, "libcrypto") != NULL || strstr(who.dli_fname, "_ssl.") != NULL))
		return 3;
	return (pid_t)syscall(SYS_getpid);
}
