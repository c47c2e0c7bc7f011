/* Calls of a jail that write into its workspace, or that reach a socket by its name: they are served outside, by name.
 *
 *	cell ──call──► kernel ──notification──► notifier ──judge──► the call, on a writable mount ──result──► cell
 *
 * In the jail the workspace is mounted read-only; that is the wall. A filter of pid 1's, inherited by all of the jail,
 * has the kernel hand calls with write intent to one process of ours, the notifier. It resolves the path as the caller
 * would, judges the resolved name, acts on the workspace's writable mount with the jail's own uid, and answers.
 * Whatever is not in the workspace goes on in the kernel as if nothing had been: a notification only ever grants, so a
 * string that is changed after the look gains nothing, but for FIFOs: no mount keeps anybody from writing them. Two
 * calls are never left to go on. One is connect, for no mount stands before a socket. The other is chmod where it would
 * let others write: by a descriptor that the notifier has given it, a cell would get past the mount.
 *
 * In a warm jail (cellblock/warm.h) the guest is no child of pid 1's, and loads the same filter for itself. So there
 * are two filters with a listener each, which one notifier serves, for what it knows of files that this jail has made
 * holds for both. Ids of notifications are those of one listener; it ends when nobody has its filter any more.
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

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cb_jail;
struct cb_inmate;
struct cb_cgroup;

/* What the notifier needs, in the order in which the broker gets it; what a jail has no need of is left out. It comes
 * from pid 1, and in a warm jail CB_NOTIFY_LISTENER from the guest. With that one the notifier starts. */
enum cb_notify_fd {
	CB_NOTIFY_USERNS,
	CB_NOTIFY_MNTNS, /* the jail's */
	CB_NOTIFY_TREE,	 /* the workspace's writable mount, detached */
	CB_NOTIFY_LISTENER_JOBS, /* of pid 1 and its helpers, in a warm jail; -1 in others */
	CB_NOTIFY_LISTENER,	 /* of the guest and, where there is no other, of all of the jail */
	CB_NOTIFY_OWNNS, /* not from pid 1: the mount namespace that the first notifier has put the tree into */
	CB_NOTIFY_NFDS
};

#define CB_NOTIFY_WAITERS 64 /* calls of connect that wait */
#define CB_NOTIFY_HELD 64    /* calls that wait for what others have just made */
#define CB_NOTIFY_FIRST_HELD (CB_NOTIFY_THREADS + CB_NOTIFY_WAITERS)

/* Which listener a notification is from. */
enum cb_notify_from {
	CB_NOTIFY_FROM_GUEST, /* CB_NOTIFY_LISTENER */
	CB_NOTIFY_FROM_JOBS,  /* CB_NOTIFY_LISTENER_JOBS */
	CB_NOTIFY_FROMS
};
static inline int cb_notify_listener(const int fds[CB_NOTIFY_NFDS], enum cb_notify_from from)
{
	return fds[from == CB_NOTIFY_FROM_GUEST ? CB_NOTIFY_LISTENER : CB_NOTIFY_LISTENER_JOBS];
}

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
 * the last one, dead, has left. A table for each listener, though they share waiters and held calls: so that one store
 * says both which call it is and whose. */
struct cb_notify_shared {
	uint64_t busy[CB_NOTIFY_FROMS][CB_NOTIFY_FIRST_HELD + CB_NOTIFY_HELD]; /* ids, 0 = none */
	uint64_t last[CB_NOTIFY_FROMS]; /* that was received; ids go up by one */
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

/* ---- filter.c: pid 1, and the broker, which compiles ---- */

#define CB_NOTIFY_INSNS_MAX 160
struct cb_notify_program {
	struct sock_filter insns[CB_NOTIFY_INSNS_MAX];
	unsigned short len;
};

/* Whether anything of a jail's calls is notified. */
bool cb_notify_installed(const struct cb_jail *jail);
/* The filter's program, which the guest of a warm jail loads for itself. Length 0 if nothing is notified. */
int cb_notify_compile(const struct cb_jail *jail, struct cb_notify_program *ret, struct cb_err *err);
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
