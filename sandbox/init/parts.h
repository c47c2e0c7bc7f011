/* Shared by the files of pid 1. Trust domain: inside the jail, but ours. */
#pragma once

#include "../shared/jail.h"

/* ---- userns.c, net.c: steps ---- */

int cb_step_session(struct cb_jail *jail, struct cb_err *err); /* setsid, keyring, umask, hostname, death signal */
int cb_step_loopback(struct cb_jail *jail, struct cb_err *err);

/* ---- fds.c ---- */

/* The guest's fds get their numbers of wire.h; everything else closes at exec. *sync_fd is moved out of the way. */
int cb_fds_install(const struct cb_jail *jail, int registry, int *sync_fd, struct cb_err *err);
/* Pid 1 keeps four, under these numbers, and has /dev/null for stdio; everything else is closed. */
#define CB_INIT_FD_LINK 3
#define CB_INIT_FD_SIGNALS 4
#define CB_INIT_FD_REGISTRY 5
#define CB_INIT_FD_OOM 6 /* its own oom_score_adj; /dev/null where that can't be had */
int cb_fds_keep_init(int link, int signals, int registry, int oom, struct cb_err *err);
