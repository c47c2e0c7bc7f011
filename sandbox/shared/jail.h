/* A jail in the making, as all rooms of sandbox/ know it.
 *
 * Trust domain: broker and, after the clone, the jail's future pid 1. Three processes take part. The broker
 * (single-threaded, outside) opens what must be opened with its rights, clones pid 1 into all new namespaces, and
 * writes its maps. Pid 1 builds the root, gives up everything and forks the guest's process, which execs. The order
 * of pid 1's steps is data: the table in init/steps.c, printed by `explain`.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/guest_rights.h>
#include <cellblock/sandbox.h>

#include "../cgroup/cgroup.h"
#include <linux/filter.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* Changes laid over a folder: their layer outlives a jail, in the broker's hands. */
enum cb_upper { CB_UPPER_WORKSPACE, CB_UPPER_PACKAGES, CB_UPPERS };
#define CB_UPPER_CHANGES "changes" /* the folder in the layer that holds them */

/* What the broker prepared outside and pid 1 uses inside. All fds are O_PATH or mount fds, CLOEXEC, -1 = none. */
struct cb_jail {
	const struct cb_jail_spec *spec;
	mode_t umask;	     /* the user's, as it was outside; files that cells make follow it */
	uid_t host_uid;	     /* what the jail's only uid is outside: never the host's 0 */
	int uid_lock;	     /* from_root: the lease of host_uid, ours until we end; -1 else */
	bool from_root;	     /* the broker runs as the host's root: uid leased, workspace id-mapped */
	int workspace_fd;    /* detached mount (open_tree) of the workspace, id-mapped if from_root; -1 for tmpfs */
	dev_t workspace_dev; /* identity of the workspace folder when it was checked; verified again after mounting */
	ino_t workspace_ino; /* 0 = not opened yet; later jails of this broker get the same folder or none */
	bool workspace_ro;   /* mode rw was asked for but this user may not write there; note says so */
	/* from_root: detached mounts of spec->binds, then of spec->home_expose; -1 = absent. NULL else */
	int *mount_fds;
	int root_fd;		 /* from_root: detached mount of spec->root_path; -1 else */
	int upper_fd[CB_UPPERS]; /* detached mounts of the last jail's upper layers; -1 = none yet */
	struct timespec started; /* before anything of the workspace was seen inside */
	struct cb_written *written; /* by this broker's commits (changes/written.h); NULL = there was none */
	int watch_fd;		 /* tells what changes in the workspace's layer (overlay_watch.h); -1 = nothing does */
	int merged_fd;		 /* detached mount of the last jail's overlay workspace; -1 = none */
	bool packages_dropped;	 /* the last jail's layer over the prefix was given up: the next jail's user is told */
	bool began;		 /* a guest of an earlier jail did: it may have removed what was there at the start */
	bool warm;		 /* the guest comes from a zygote: see warm/warm.h */
	int rules_fd;		 /* pid 1 of a warm jail: Landlock's rules for guest and helpers; -1 = none */
	int ns_fds[2];		 /* pid 1: its user and mount namespaces, for the notifier; -1 = none */
	int tree_fd;		 /* pid 1: detached writable mount of the workspace, for the notifier; -1 = none */
	int sync_fd;		 /* SEQPACKET to the broker: gate and failure report */
	int oom_fd;		 /* pid 1's own oom_score_adj, as only it has it; -1 = none */
	int sockets_fd;		 /* on its way from pid 1 to cb_inmate.sockets; -1 = none */
	int guest_fds[CB_SPAWN_NFDS];
	char own_group[4096];	   /* where we were started, of /proc/self/cgroup: to have groups we may have to move */
	struct cb_cgroups cgroups; /* where groups for jails are made; kind NONE = the watchdog holds limits.memory */
	struct sock_fprog filter;  /* compiled once in the broker, loaded in every child */
	struct sock_fprog pid1_filter; /* of a warm jail's pid 1; compiled with the first one, length 0 before */
	char note[512];		   /* for cb_broker_reply.note */
	enum cb_isolation_level level; /* that the next launch reaches, unless it fails */
	/* The host refuses namespaces, and the description accepts that: without_namespaces/without_namespaces.c. */
	bool without_namespaces;
	char refused[192];    /* what the host refused: namespaces, or else a filter */
	char host_folder[32]; /* what is home, /tmp and workspace in memory elsewhere */
	int host_folder_lock; /* that folder, locked: one that nobody locks is left from a broker that was killed */
};

/* Adds to what the user is told although it worked. */
void cb_jail_add_note(struct cb_jail *jail, const char *text);
/* The policy has a folder of the host's in this place, where the jail would have one of its own. */
bool cb_jail_is_bound(const struct cb_jail_spec *spec, const char *place);

/* Whether cells may have taken it away in a layer of changes, where nobody outside could put it back. */
bool cb_jail_may_lack(const struct cb_jail *jail, const char *path);
#define CB_JAIL_LACKS_CURE "`cellblock discard`, or a restart of the kernel, brings it back."

/* Where a program begins: in `cwd`, or, if that lies in `workspace` (NULL: nowhere) and can't be entered, for cells may
 * remove it, in the workspace; then it is 1. */
int cb_enter_folder(const char *cwd, const char *workspace);

/* What of its calls is notified (notifier/notifier.h). */
bool cb_notify_writes(const struct cb_jail *jail);  /* the workspace is written through the notifier */
bool cb_notify_sockets(const struct cb_jail *jail); /* connect and bind go through it */

/* One step of pid 1. On failure fills err (step, text, cure) and returns a negative code. */
typedef int (*cb_step_fn)(struct cb_jail *jail, struct cb_err *err);

/* One row of the table of steps, for running and for explain. */
struct cb_step {
	const char *name;   /* "new root" */
	const char *reason; /* why it is done, one sentence for explain */
	cb_step_fn run;
};
