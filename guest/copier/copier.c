/* The process is copied with all its threads, and the copy waits until it is needed.
 *
 * Role: what os.fork cannot. Trust domain: guest, hostile like all of it. Contract: include/cellblock/twin.h.
 * Order: all threads stop (threads.c), what is open is noted (descriptors.c), the process is copied, its threads go on.
 * The copy is a child of the process's own parent, so that nobody here meets it. It exchanges what it must not share,
 * registers, and waits on its control socket; it may have copies of its own; woken, it brings its threads back and
 * returns to where it was called.
 *
 * Invariants: between the first stop and the last return nothing is called but what is in this folder: a thread that
 * stands still may hold any lock. Functions registered for forks do not run: to libraries nothing was forked.
 */
#include "copier.h"

#include <cellblock/twin.h>
#include <cellblock/wire.h>
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/socket.h>

#include "parts.h"
#include "sys.h"

#define EXPORT __attribute__((visibility("default")))
#define PR_SET_NAME_ 15
#define PR_GET_NAME_ 16
enum { SCHED_OTHER_ = 0, SCHED_BATCH_ = 3 };

static long copy(void)
{
	return cb_sys5(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
}

static void say(int fd, const void *message, size_t size)
{
	struct iovec part = { .iov_base = (void *)(uintptr_t)message, .iov_len = size };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

	(void)cb_sys3(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);
}

/* A session of its own, its own channels, and nothing that the original would miss the end of. */
static void settle(uint32_t number, const int *fds, size_t n, int *ret_side)
{
	struct cb_registry_msg registration = { .number = number };
	struct cb_twin_control_msg born = { .op = CB_TWIN_CONTROL_BORN, .number = number };

	(void)cb_sys0(SYS_setsid);
	if (cb_descriptors_exchange(fds, n, ret_side) < 0)
		cb_sys_leave(1);
	say(CB_GUEST_FD_REGISTRY, &registration, sizeof(registration));
	say(CB_GUEST_FD_TWIN_CONTROL, &born, sizeof(born));
}

/* What is to be done; *ret_n descriptors come along. 0 at the socket's end. Until then there is copying to do. */
static uint32_t hear(uint32_t *ret_number, int fds[CB_BIRTH_NFDS], size_t *ret_n)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(CB_BIRTH_NFDS * sizeof(int))];
	} control;
	struct cb_twin_control_msg message = { 0 };
	struct iovec part = { .iov_base = &message, .iov_len = sizeof(message) };
	struct msghdr m = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	bool more = true;
	long n;

	*ret_n = 0;
	for (;;) {
		n = cb_sys3(SYS_recvmsg, CB_GUEST_FD_TWIN_CONTROL, &m, MSG_CMSG_CLOEXEC | (more ? MSG_DONTWAIT : 0));
		if (n == -EAGAIN && more)
			more = cb_pages_copy();
		else if (n != -EINTR)
			break;
	}
	if (n <= 0)
		return 0;
	if (m.msg_controllen >= sizeof(control.header) && control.header.cmsg_level == SOL_SOCKET &&
	    control.header.cmsg_type == SCM_RIGHTS) {
		*ret_n = (control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < *ret_n; i++)
			fds[i] = ((const int *)(const void *)CMSG_DATA(&control.header))[i];
	}
	*ret_number = message.number;
	return message.op;
}

/* Returns when this process, or a copy of it, is woken; true if it runs beside its original. */
static bool wait_to_be_woken(uint32_t number, int *side)
{
	int fds[CB_BIRTH_NFDS];
	size_t n;

	for (;;) {
		uint32_t op = hear(&number, fds, &n);

		if (op == 0)
			cb_sys_leave(0);
		if (op == CB_TWIN_CONTROL_WAKE || op == CB_TWIN_CONTROL_BRANCH)
			return op == CB_TWIN_CONTROL_BRANCH;
		if (op == CB_TWIN_CONTROL_BREED && n >= CB_BIRTH_SIDE && copy() == 0) {
			if (*side >= 0)
				(void)cb_sys1(SYS_close, *side);
			cb_pages_copy_nothing();
			settle(number, fds, n, side);
			continue;
		}
		for (size_t i = 0; i < n; i++)
			(void)cb_sys1(SYS_close, fds[i]);
	}
}

/* A frozen copy takes no processor from who is just at work, least of all with its end, which is a millisecond's work
 * (sched(7)). Lower than this nobody may come back from. */
static bool stand_back(bool back)
{
	const int priority = 0, from = back ? SCHED_OTHER_ : SCHED_BATCH_, to = back ? SCHED_BATCH_ : SCHED_OTHER_;

	return cb_sys1(SYS_sched_getscheduler, 0) == from && cb_sys3(SYS_sched_setscheduler, 0, to, &priority) == 0;
}

static void be_copy(int64_t *a, const int *fds, size_t n)
{
	char name[16];
	bool back;
	int side = -1;

	(void)cb_sys2(SYS_prctl, PR_GET_NAME_, name);
	(void)cb_sys2(SYS_prctl, PR_SET_NAME_, "cellblock-twin");
	back = stand_back(true);
	settle((uint32_t)a[CB_COPIER_NUMBER], fds, n, &side);
	a[CB_COPIER_BRANCH] = wait_to_be_woken((uint32_t)a[CB_COPIER_NUMBER], &side);
	if (back)
		(void)stand_back(false);
	(void)cb_sys2(SYS_prctl, PR_SET_NAME_, name);
	cb_descriptors_listen(a[CB_COPIER_BRANCH] != 0);
	cb_descriptors_back(a[CB_COPIER_BRANCH] != 0);
	cb_threads_restore_own();
	cb_loops_mark();
	if (cb_threads_revive() < 0)
		cb_sys_leave(1); /* an older one takes over */
	a[CB_COPIER_SIDE] = side;
}

static void answer(const char *frame, size_t size, size_t sockets)
{
	char text[CB_COPIER_ANSWER_MAX];
	char *digit = text + size - 2;
	long n = 0;

	for (size_t i = 0; i < size; i++)
		text[i] = frame[i];
	do
		*--digit = (char)('0' + sockets % 10);
	while ((sockets /= 10) != 0);
	for (size_t done = 0; done < size && n >= 0; done += (size_t)n)
		n = cb_sys3(SYS_write, CB_GUEST_FD_WIRE, text + done, size - done);
}

EXPORT long cb_copier_copy(int64_t a[CB_COPIER_FIELDS], const char *frame)
{
	int fds[CB_BIRTH_NFDS], pairs[CB_COPIER_PAIRS_MAX];
	size_t size = (size_t)a[CB_COPIER_ANSWER];
	size_t n = (size_t)a[CB_COPIER_NFDS], npairs = (size_t)a[CB_COPIER_NPAIRS];
	long r;

	if (n < CB_BIRTH_SIDE || n > CB_BIRTH_NFDS || npairs > CB_COPIER_PAIRS_MAX ||
	    (size != 0 && size < sizeof(CB_COPIER_BLANK)) || size > CB_COPIER_ANSWER_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		fds[i] = (int)a[CB_COPIER_FDS + i];
	for (size_t i = 0; i < npairs; i++)
		pairs[i] = (int)a[CB_COPIER_PAIRS + i];
	cb_pages_look(a[CB_COPIER_ROOM]);
	r = cb_loops_note(a + CB_COPIER_LOOPS);
	if (r == 0)
		r = cb_threads_stop();
	if (r < 0)
		return r;
	r = cb_descriptors_note(pairs, npairs, fds, n);
	if (r == 0)
		r = copy();
	a[CB_COPIER_SOCKETS] = (int64_t)cb_descriptors_sockets();
	if (r == 0) {
		be_copy(a, fds, n);
		return 0;
	}
	cb_threads_go_on();
	if (r > 0 && size > 0) /* now: who has it looks at whether they are at work (twins_restore.c) */
		answer(frame, size, (size_t)a[CB_COPIER_SOCKETS]);
	if (r > 0)
		cb_pages_get();
	a[CB_COPIER_UNTIDY] = cb_pages_untidy();
	return r < 0 ? r : 1;
}

EXPORT long cb_copier_try_to_stop(void)
{
	int r = cb_threads_stop();

	if (r == 0)
		cb_threads_go_on();
	return r;
}

EXPORT long cb_copier_tidy(void)
{
	cb_pages_tidy();
	return 0;
}

EXPORT long cb_copier_thread(long i, int64_t ret[2])
{
	int old = 0, new = 0;

	if (!cb_threads_ids(i, &old, &new))
		return -1;
	ret[0] = old;
	ret[1] = new;
	return new;
}

EXPORT long cb_copier_go_on(void)
{
	cb_threads_all_go_on();
	return 0;
}

EXPORT long cb_copier_waited(long fd)
{
	return cb_descriptors_waited((int)fd);
}
