/* Loading a seccomp filter.
 *
 * Role: patience and the right words where the kernel has no memory for one more. That memory is one sum for the whole
 * machine (net.core.bpf_jit_limit), so others can use it up, and what their ended processes held comes back a moment
 * later only. Trust domain: whoever loads a filter for itself: supervisor, broker, pid 1, a guest's process before its
 * exec. Invariants: nothing is allocated; it ends within PATIENCE tries.
 */
#include <cellblock/filter.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60
#define PAUSE_MS 50

/* The kernel's own ENOTSUPP, which no C library has a name for. */
#define KERNEL_ENOTSUPP 524

static bool is_want_of_memory(int error)
{
	return error == ENOMEM || error == EAGAIN || error == KERNEL_ENOTSUPP;
}

static int load(const struct sock_fprog *filter, bool by_prctl)
{
	long r = by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0)
			  : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter);

	return r == 0 ? 0 : -errno;
}

int cb_filter_load(const struct sock_fprog *filter, bool by_prctl)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
	int r = load(filter, by_prctl);

	for (int i = 0; i < PATIENCE && r < 0 && is_want_of_memory(-r); i++) {
		(void)nanosleep(&pause, NULL);
		r = load(filter, by_prctl);
	}
	return r;
}

const char *cb_filter_reason(int error)
{
	return error == KERNEL_ENOTSUPP ? "ENOTSUPP (524): the memory that this machine has for BPF programs and "
					  "seccomp filters is used up"
					: strerror(error);
}

const char *cb_filter_cure(int error)
{
	return is_want_of_memory(error) ? "End the programs that load many BPF programs or seccomp filters, or raise "
					  "net.core.bpf_jit_limit, and start the kernel again."
					: NULL;
}
