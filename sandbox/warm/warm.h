/* Warm start, as the broker uses it. The contract with zygotes is include/cellblock/warm.h.
 *
 * Trust domain: broker, outside.
 *
 *	cb_warm_find ──► the jail is built, owned by the zygote's user ──► cb_warm_ask ──► cb_warm_go_on
 *	     │ none                                                             │ fails
 *	     └──► a cold start, and cb_warm_start behind it                     └──► the jail is given up; a cold start
 */
#pragma once

#include "../cgroup/cgroup.h"
#include "../shared/jail.h"

#include <cellblock/error.h>
#include <cellblock/warm.h>
#include <stdint.h>
#include <sys/types.h>

#define CB_WARM_STEP "warm start"

/* A zygote that listens. */
struct cb_warm {
	int connection; /* -1 = none */
	pid_t pid;
	uid_t uid;		   /* its own: a jail must be owned by it, for the zygote to have a right to enter */
	int userns;		   /* not from root: that it lives in, and jails must be made in; else -1 */
	int pidns;		   /* that it lives in, and jails' must be made in */
	int offered[CB_WARM_NFDS]; /* what has come from pid 1, and the guest's own */
	struct timespec last_use;
};
#define CB_WARM_NONE                                                                                                   \
	((struct cb_warm){ .connection = -1, .userns = -1, .pidns = -1, .offered = { [0 ... CB_WARM_NFDS - 1] = -1 } })

void cb_warm_close(struct cb_warm *warm);

/* ---- key.c ---- */

/* Whether a jail of this kind can have a guest from a zygote at all. */
bool cb_warm_is_wanted(const struct cb_jail *jail);
/* The name of the zygotes that fit. Constant for a jail's description and this broker's own state. */
int cb_warm_key(const struct cb_jail *jail, char ret_key[CB_WARM_KEY_LEN + 1]);
/* Whether a NAME=VALUE is one of CB_WARM_LATE_ENV. */
bool cb_warm_is_late(const char *variable);
/* The description of a zygote's own jail: that of the jail without what belongs to one session. Strings are the
 * original's; the caller frees ret->binds, ret->env.items. */
int cb_warm_spec(const struct cb_jail_spec *spec, struct cb_jail_spec *ret);
/* How many filters of system calls /proc/PID/status counts; those of this process itself. */
unsigned long cb_warm_filters_of(const char *status);
unsigned long cb_warm_own_filters(void);
/* Whether all that the stamp of a zygote for such jails names is as it was: 0, -ESTALE; -EXDEV if there is another file
 * or none, and was when it began to serve; or CB_E_SYNTAX for one that is none. Cuts the text up. */
int cb_warm_stamp_check(const struct cb_jail_spec *spec, struct timespec since, char *stamp);

/* ---- ask.c ---- */

/* Connects to a zygote's socket; nothing there waits. */
int cb_warm_connect(int folder, const char *key, int *ret_fd);
/* When a zygote began to serve, or served last: it says so by the time of its lock. */
int cb_warm_last_use(int folder, const char *key, struct timespec *ret);
/* 0 and a zygote that listens, or why there is none; what nobody else would tell is logged. For jails that
 * cb_warm_is_wanted says yes to. */
int cb_warm_find(const struct cb_jail *jail, struct cb_warm *ret_warm);
/* In a process that is to make pid 1: takes on whom the zygote has a right over, and its children are born where it can
 * come. */
int cb_warm_become_owner(const struct cb_warm *warm, struct cb_err *err);
/* When pid 1 is ready and all that it offers is in warm->offered: has a guest made, and looks at it. It waits then
 * until cb_warm_go_on. ret_listener: of its notified calls, -1 = none are. */
int cb_warm_ask(struct cb_warm *warm, const struct cb_jail *jail, const struct cb_cgroup *group, int pid1fd,
		pid_t *ret_guest, int *ret_listener, struct cb_err *err);
int cb_warm_go_on(struct cb_warm *warm, struct cb_err *err);

/* ---- zygote.c ---- */

/* Starts a zygote for jails like this one, if there is none and none is being started. Returns at once. */
void cb_warm_start(const struct cb_jail *jail);
