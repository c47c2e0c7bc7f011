/* Calls of a jail that write into its workspace, or that reach a socket by its name: they are served outside, by name.
 *
 *	cell ──call──► kernel ──notification──► notifier ──judge──► the call, on a writable mount ──result──► cell
 *
 * In the jail the workspace is mounted read-only; that is the wall. A filter of pid 1's, inherited by all of the jail,
 * has the kernel hand calls with write intent to one process of ours, the notifier. It resolves the path as the caller
 * would, judges the resolved name, acts on the workspace's writable mount with the jail's own uid, and answers.
 * Whatever is not in the workspace goes on in the kernel as if nothing had been: a notification only ever grants, so a
 * string that is changed after the look gains nothing. connect is never left to go on, for no mount stands before a
 * socket.
 *
 * Trust domains: pid 1 installs the filter (filter.c). The broker starts the notifier, starts it again when it dies,
 * and holds what it needs for that (start.c). The notifier itself (notifier.c and the other files) reads from hostile
 * processes: it lives in the jail's user namespace with CAP_SYS_PTRACE there alone, in a mount namespace of what the
 * jail sees and the workspace, under a filter of its own, and outside the jail's process namespace, so that no cell
 * sees it.
 */
#pragma once

#include "../cgroup/own_tasks.h"

#include <cellblock/error.h>
#include <cellblock/sandbox.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cb_jail;
struct cb_inmate;
struct cb_cgroup;

/* What pid 1 hands to the broker, in this order; what a jail has no need of is left out, the listener comes last. */
enum cb_notify_fd {
	CB_NOTIFY_USERNS,
	CB_NOTIFY_MNTNS, /* the jail's */
	CB_NOTIFY_TREE,	 /* the workspace's writable mount, detached */
	CB_NOTIFY_LISTENER,
	CB_NOTIFY_OWNNS, /* not from pid 1: the mount namespace that the first notifier has put the tree into */
	CB_NOTIFY_NFDS
};

#define CB_NOTIFY_WAITERS 64 /* calls of connect that wait */
#define CB_NOTIFY_HELD 64    /* calls that wait for what others have just made */
#define CB_NOTIFY_FIRST_HELD (CB_NOTIFY_THREADS + CB_NOTIFY_WAITERS)

#define CB_REFUSALS 12 /* of a kind, that are told */

enum cb_refused {
	CB_REFUSED_NAME, /* EROFS: workspace.protect */
	CB_REFUSED_LINK, /* EPERM: a symbolic link that leads out */
	CB_REFUSED_FILE, /* EPERM: it has other names, or bits, for which it is not written */
	CB_REFUSED_KINDS
};

/* A name that was refused, and what is to be said of it: the pattern, where the link leads. Cut where it is longer. */
struct cb_refusal {
	char path[160];
	char about[48];
};

/* On pages that the broker and the notifier share: notifications that are being served. A new notifier answers what
 * the last one, dead, has left. */
struct cb_notify_shared {
	uint64_t busy[CB_NOTIFY_FIRST_HELD + CB_NOTIFY_HELD]; /* ids, 0 = none */
	uint64_t last;					      /* that was received; ids go up by one */
	struct cb_refusal refused[CB_REFUSED_KINDS][CB_REFUSALS]; /* each name once; path "" = none */
	bool refused_more[CB_REFUSED_KINDS];
};

/* The notifier of one jail, as the broker knows it. */
struct cb_notifier {
	pid_t pid; /* 0 = none */
	int pidfd;
	int fds[CB_NOTIFY_NFDS];
	struct cb_notify_shared *shared;
	unsigned starts;
};
#define CB_NOTIFIER_NONE ((struct cb_notifier){ .pidfd = -1, .fds = { [0 ... CB_NOTIFY_NFDS - 1] = -1 } })

/* ---- filter.c: pid 1 ---- */

/* Whether anything of a jail's calls is notified. */
bool cb_notify_installed(const struct cb_jail *jail);
/* Installs the filter and hands to the broker what the notifier needs. Nothing if nothing is notified. */
int cb_notify_install(const struct cb_jail *jail, struct cb_err *err);

/* ---- start.c: broker, run ---- */

/* Starts a notifier; returns when it serves. Again after one died: what that left is answered with EIO. */
int cb_notify_start(const struct cb_jail *jail, const struct cb_cgroup *group, struct cb_notifier *n,
		    struct cb_err *err);
/* When its pidfd says that it has ended: reaps it and starts another, while the jail lives. */
void cb_notify_died(const struct cb_jail *jail, const struct cb_cgroup *group, struct cb_notifier *n);
/* Says on stderr, in a line for each kind, what was refused; nothing if that was nothing. */
void cb_notify_tell(const struct cb_notifier *n);
/* Ends it, and closes what it needed. For one that never was, too. */
void cb_notify_stop(struct cb_notifier *n);

/* ---- notifier.c: the notifier's process ---- */

_Noreturn void cb_notify_main(const struct cb_jail *jail, const struct cb_notifier *n, int status_fd);
