/* What the files about processes share: prepare, launch, userns, fds, init. Private to sandbox/. */
#pragma once

#include "jail.h"

/* ---- broker/prepare.c: once for a broker or a run ---- */

/* Reads the description, leases a uid if we are root, compiles the filter and tests it. *spec must outlive *jail. */
int cb_jail_prepare(struct cb_jail *jail, struct cb_jail_spec *spec, int spec_fd, struct cb_err *err);

/* ---- the sync socket between the broker and what it has cloned: one struct cb_sync a message ---- */

enum cb_sync_kind {
	CB_SYNC_GO = 1,	  /* to pid 1: the maps are written */
	CB_SYNC_GUEST,	  /* from the guest's process just before its exec: the kernel adds its pid */
	CB_SYNC_UPPER,	  /* from pid 1, with an fd: the layer of changes `upper`, to be kept */
	CB_SYNC_MERGED,	  /* from pid 1, with an fd: the overlay workspace as the jail sees it */
	CB_SYNC_WATCH,	  /* from pid 1, with an fd: what tells of the workspace's new layer */
	CB_SYNC_NOTIFIER, /* from pid 1, with an fd: what `upper` names of enum cb_notify_fd; the listener comes last */
	CB_SYNC_SOCKETS,  /* from pid 1, with an fd: what shows the sockets of its network namespace */
	CB_SYNC_FAILED,	  /* from pid 1 or the guest's process: err says why there will be no jail */
};

struct cb_sync {
	uint32_t kind;
	uint32_t upper; /* UPPER: enum cb_upper; NOTIFIER: enum cb_notify_fd */
	struct cb_err err;
	char note[512]; /* GUEST: jail->note, as the steps left it */
};

int cb_sync_send(int fd, enum cb_sync_kind kind, const struct cb_err *err, const char *note);
/* How far a launch has got, for the message when it hangs and for the log. In pid 1 until the guest's exec. */
void cb_launch_mark(const char *phase);

/* ---- init/userns.c ---- */

int cb_userns_write_maps(const struct cb_jail *jail, pid_t pid1, struct cb_err *err); /* broker */
int cb_userns_enter(const struct cb_jail *jail, struct cb_err *err);		      /* pid 1, after the maps */

/* ---- init/fds.c ---- */

/* The guest's fds get their numbers of wire.h; everything else closes at exec. *sync_fd is moved out of the way. */
int cb_fds_install(const struct cb_jail *jail, int registry, int *sync_fd, struct cb_err *err);
/* Pid 1 keeps four, under these numbers, and has /dev/null for stdio; everything else is closed. */
#define CB_INIT_FD_LINK 3
#define CB_INIT_FD_SIGNALS 4
#define CB_INIT_FD_REGISTRY 5
#define CB_INIT_FD_OOM 6 /* its own oom_score_adj; /dev/null where that can't be had */
int cb_fds_keep_init(int link, int signals, int registry, int oom, struct cb_err *err);

/* ---- init/init.c ---- */

void cb_default_signals(void); /* before an exec: nothing blocked, nothing ignored */

/* ---- broker/broker.c, broker/run.c ---- */

int cb_broker_main(int fd, int spec_fd);
int cb_run_main(int spec_fd, double timeout);
