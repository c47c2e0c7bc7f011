/* Shared by the files of pid 1. Trust domain: inside the jail, but ours. */
#pragma once

#include "../shared/jail.h"

/* ---- userns.c, net.c: steps ---- */

int cb_step_session(struct cb_jail *jail, struct cb_err *err); /* setsid, keyring, umask, hostname, death signal */
int cb_step_loopback(struct cb_jail *jail, struct cb_err *err);

/* ---- fds.c ---- */

/* The guest's fds get their numbers of wire.h; everything else closes at exec. *sync_fd is moved out of the way. */
int cb_fds_install(const struct cb_jail *jail, int registry, int *sync_fd, struct cb_err *err);

/* What pid 1 keeps, under these numbers (init.c); for stdio it has /dev/null. */
enum {
	CB_INIT_FD_LINK = 3,
	CB_INIT_FD_SIGNALS,
	CB_INIT_FD_REGISTRY,
	CB_INIT_FD_OOM,	  /* its own oom_score_adj; /dev/null where that can't be had */
	CB_INIT_FD_RULES, /* of a warm jail: Landlock's, for helpers */
	CB_INIT_FD_SYNC,  /* of a warm jail: to the broker, until the guest is there */
	CB_INIT_FD_END
};
#define CB_INIT_NFDS (CB_INIT_FD_END - CB_INIT_FD_LINK)
