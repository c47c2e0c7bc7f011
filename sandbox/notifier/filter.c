/* The filter that hands calls to the notifier; installed by pid 1 before the guest is forked, and in a warm jail by the
 * guest itself, which gets the program from the broker.
 *
 * Trust domain: pid 1; in a warm jail the broker, too. Beside the big filter (walls/seccomp_groups.def), whose refusals
 * come first. A call that writes is notified where the workspace is writable at all, bind where a named socket can come
 * to lie in the workspace, connect where no socket outside may be reached. Datagram sockets of the Unix family can name
 * their peer with each message, which no notification could keep up with: without a network there are none, and no
 * questions about interfaces.
 */
#include "../shared/jail.h"
#include "../shared/sync.h"
#include "calls.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STEP "notifier"
#define OPEN_WRITES ((uint32_t)(O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY)))

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV /* Linux 5.19 */
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

bool cb_notify_installed(const struct cb_jail *jail)
{
	return cb_notify_writes(jail) || cb_notify_sockets(jail);
}

static void put(struct cb_notify_program *p, struct sock_filter insn)
{
	if (p->len < CB_NOTIFY_INSNS_MAX)
		p->insns[p->len++] = insn;
}

/* With `bits` only if one of them is set in the argument `call->a`. */
static void put_call(struct cb_notify_program *p, const struct cb_notify_call *call)
{
	uint32_t bits = call->kind == CB_NOTIFY_WRITE_OPEN ? OPEN_WRITES : call->kind == CB_NOTIFY_WRITE_ASK ? W_OK : 0;
	uint32_t at = (uint32_t)(offsetof(struct seccomp_data, args) + 8u * (unsigned)call->a);

	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call->nr, 0, bits != 0 ? 4 : 1));
	if (bits != 0) {
		put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
		put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0));
		put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	}
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
}

/* Of the Unix family (1) only streams (1) and sequential packets (5). */
static void put_no_datagrams(struct cb_notify_program *p, uint32_t nr)
{
	uint32_t family_at = (uint32_t)offsetof(struct seccomp_data, args), type_at = family_at + 8;

	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 8));
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, family_at));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 4));
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, type_at));
	put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 0, 1));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT));
}

/* The guest's channels are sockets of the network that its supervisor is in, and would tell of the interfaces there. */
static void put_no_interfaces(struct cb_notify_program *p)
{
	uint32_t request_at = (uint32_t)offsetof(struct seccomp_data, args) + 8;

	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5));
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, request_at));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SIOCGIFNAME, 0, 2));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SIOCPROTOPRIVATE + 0xf, 1, 0));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENODEV));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

static bool is_wanted(enum cb_notify_kind kind, bool writes, bool sockets)
{
	if (kind == CB_NOTIFY_CONNECT)
		return sockets;
	if (kind == CB_NOTIFY_BIND)
		return writes || sockets;
	return writes;
}

/* Other machines' calls are killed by the big filter. */
static int make(struct cb_notify_program *p, bool writes, bool sockets)
{
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (size_t i = 0; i < cb_notify_calls_count; i++)
		if (is_wanted(cb_notify_calls[i].kind, writes, sockets))
			put_call(p, &cb_notify_calls[i]);
	if (sockets) {
		put_no_datagrams(p, SYS_socket);
		put_no_datagrams(p, SYS_socketpair);
		put_no_interfaces(p);
	}
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	return p->len < CB_NOTIFY_INSNS_MAX ? 0 : CB_E_TOO_BIG;
}

/* With WAIT_KILLABLE_RECV a call that is being served is not begun again when a signal comes. */
static int load(const struct sock_fprog *filter, int *ret_listener)
{
	unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, filter);

	if (fd < 0 && errno == EINVAL)
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, filter);
	if (fd < 0)
		return -errno;
	*ret_listener = (int)fd;
	return 0;
}

static int hand_over(const struct cb_jail *jail, uint32_t which, int fd)
{
	return cb_sync_send_fd(jail->sync_fd, CB_SYNC_NOTIFIER, which, fd);
}

static int fail(struct cb_err *err, int r)
{
	return cb_err_set(err, r, STEP, NULL, "calls that write can't be handed to their judge: %s", strerror(-r));
}

int cb_notify_compile(const struct cb_jail *jail, struct cb_notify_program *ret, struct cb_err *err)
{
	bool writes = cb_notify_writes(jail), sockets = cb_notify_sockets(jail);
	int r;

	ret->len = 0;
	if (!writes && !sockets)
		return 0;
	if (!jail->spec->notifier)
		return cb_err_set(err, CB_E_DENIED, STEP, NULL,
				  "workspace.mode is \"rw\", and this kernel can't have a jail's write calls judged "
				  "(Linux 5.14 can, where no other sandbox around listens already)");
	r = make(ret, writes, sockets);
	return r < 0 ? fail(err, r) : 0;
}

int cb_notify_install(const struct cb_jail *jail, struct cb_err *err)
{
	struct cb_notify_program program;
	CB_AUTO_FD listener = -1;
	int r = cb_notify_compile(jail, &program, err);

	if (r < 0 || program.len == 0)
		return r;
	r = load(&(struct sock_fprog){ .len = program.len, .filter = program.insns }, &listener);
	if (r == 0)
		r = hand_over(jail, CB_NOTIFY_USERNS, jail->ns_fds[0]);
	if (r == 0)
		r = hand_over(jail, CB_NOTIFY_MNTNS, jail->ns_fds[1]);
	if (r == 0 && cb_notify_writes(jail))
		r = hand_over(jail, CB_NOTIFY_TREE, jail->tree_fd);
	if (r == 0)
		r = hand_over(jail, jail->warm ? CB_NOTIFY_LISTENER_JOBS : CB_NOTIFY_LISTENER, listener);
	return r == 0 ? 0 : fail(err, r);
}
