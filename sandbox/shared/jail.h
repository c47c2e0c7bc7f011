/* How a jail is built: shared by the files of sandbox/.
 *
 * Trust domain: broker and, after the clone, the jail's future pid 1. Three processes take part. The broker
 * (single-threaded, outside) opens what must be opened with its rights, clones pid 1 into all new namespaces, and
 * writes its maps. Pid 1 builds the root, gives up everything and forks the guest's process, which execs. The order
 * of pid 1's steps is data: the table in init/steps.c, printed by `explain`.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/sandbox.h>

#include "../cgroup/cgroup.h"
#include "../notifier/notifier.h"
#include <linux/filter.h>
#include <stdbool.h>
#include <sys/types.h>

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
	int watch_fd;		 /* tells what changes in the workspace's layer (overlay_watch.h); -1 = nothing does */
	int merged_fd;		 /* detached mount of the last jail's overlay workspace; -1 = none */
	bool packages_dropped;	 /* the last jail's layer over the prefix was given up: the next jail's user is told */
	int ns_fds[2];		 /* pid 1: its user and mount namespaces, for the notifier; -1 = none */
	int tree_fd;		 /* pid 1: detached writable mount of the workspace, for the notifier; -1 = none */
	int sync_fd;		 /* SEQPACKET to the broker: gate and failure report */
	int oom_fd;		 /* pid 1's own oom_score_adj, as only it has it; -1 = none */
	int sockets_fd;		 /* on its way from pid 1 to cb_inmate.sockets; -1 = none */
	int guest_fds[CB_SPAWN_NFDS];
	struct cb_cgroups cgroups; /* where groups for jails are made; kind NONE = the watchdog holds limits.memory */
	struct sock_fprog filter;  /* compiled once in the broker, loaded in every child */
	char note[512];		   /* for cb_broker_reply.note */
	enum cb_isolation_level level; /* that the next launch reaches, unless it fails */
	bool bare;		       /* the host refuses namespaces, and the description accepts that:
					  without_namespaces/without_namespaces.c */
	char bare_reason[192];	       /* what was refused */
	char bare_folder[32];	       /* what is home, /tmp and workspace in memory elsewhere */
	int bare_lock; /* that folder, locked: one that nobody locks is left from a broker that was killed */
};

/* root/workspace.c: adds to what the user is told although it worked. */
void cb_jail_add_note(struct cb_jail *jail, const char *text);

/* root/overlay.c, pid 1: a detached mount of `lower` (which is used up) with a limited layer for changes over it. */
struct cb_overlay_size {
	uint64_t bytes, inodes;
};
int cb_overlay_make(struct cb_jail *jail, enum cb_upper which, int lower, const struct cb_overlay_size *size,
		    int *ret_mnt);
int cb_overlay_unstage(void); /* just before the pivot: takes away what making overlays needed */

#define CB_JAIL_UID 1000 /* uid and gid inside */

/* One step of pid 1. On failure fills err (step, text, cure) and returns a negative code. */
typedef int (*cb_step_fn)(struct cb_jail *jail, struct cb_err *err);

/* mounts.c, root/rootfs.c, root/proc.c, root/dev.c, root/workspace.c: the file system. */
/* broker, outside: open, check, id-map, detach; also the binds */
int cb_workspace_open(struct cb_jail *jail, struct cb_err *err);
/* broker, after the clone: drops what cb_workspace_open opened */
void cb_workspace_close(struct cb_jail *jail);
/* root/rootfs.c, broker (started by root) or pid 1: a detached read-only mount of spec->root_path */
int cb_image_open(const struct cb_jail *jail, int *ret_mnt, struct cb_err *err);
int cb_step_private_mounts(struct cb_jail *jail, struct cb_err *err);
/* tmpfs root; system folders, /etc. From here to pivot the working folder is the new root; "/" is still the host's */
int cb_step_new_root(struct cb_jail *jail, struct cb_err *err);
int cb_step_dev(struct cb_jail *jail, struct cb_err *err);
int cb_step_proc(struct cb_jail *jail, struct cb_err *err);
int cb_step_tmpfs(struct cb_jail *jail, struct cb_err *err); /* /tmp, home, /dev/shm */
/* spec->binds outside the workspace, home_expose: after tmpfs */
int cb_step_binds(struct cb_jail *jail, struct cb_err *err);
int cb_step_workspace(struct cb_jail *jail, struct cb_err *err); /* move the mount in, verify inode */
/* spec->binds with a target in it */
int cb_step_workspace_binds(struct cb_jail *jail, struct cb_err *err);
int cb_step_pivot(struct cb_jail *jail, struct cb_err *err); /* pivot, detach the old root, root read-only */

/* init/userns.c, init/net.c, walls/caps.c, walls/limits.c, init/fds.c: what the process is and may. */
int cb_step_session(struct cb_jail *jail, struct cb_err *err); /* setsid, keyring, umask, hostname, death signal */
int cb_step_loopback(struct cb_jail *jail, struct cb_err *err);
int cb_step_limits(struct cb_jail *jail, struct cb_err *err);
int cb_step_caps(struct cb_jail *jail, struct cb_err *err); /* all five sets, securebits, no_new_privs */
int cb_caps_keep(uint64_t caps, struct cb_err *err);	    /* the same but for these, by their bits */

/* walls/landlock.c: as the mounts have it, once more; nothing where the kernel has no Landlock */
int cb_step_landlock(struct cb_jail *jail, struct cb_err *err);

/* walls/seccomp.c, walls/seccomp_groups.def */
int cb_seccomp_compile(struct sock_fprog *ret_filter, struct cb_err *err); /* broker, once */
int cb_seccomp_load(const struct sock_fprog *filter, struct cb_err *err);
/* Where no network namespace stands before them: refuses sockets. All, or with `internet` those that are local. */
int cb_seccomp_load_no_sockets(bool internet, struct cb_err *err);
/* Every process but pid 1, on top of all other filters: kill(-1) is refused, and any filter after this one. */
int cb_seccomp_load_last(struct cb_err *err);
/* in a forked child: allowed calls work, denied are denied */
int cb_seccomp_selftest(const struct sock_fprog *filter, struct cb_err *err);
/* the same in two steps: the child needs some milliseconds */
int cb_seccomp_selftest_begin(const struct sock_fprog *filter, pid_t *ret_pid, struct cb_err *err);
int cb_seccomp_selftest_end(pid_t pid, struct cb_err *err);

/* One row of the table of steps, for running and for explain. */
struct cb_step {
	const char *name;   /* "new root" */
	const char *reason; /* why it is done, one sentence for explain */
	cb_step_fn run;
};
extern const struct cb_step cb_jail_steps[];
extern const size_t cb_jail_steps_count;

/* A jail that runs, as the broker knows it. */
struct cb_inmate {
	pid_t pid1;  /* 0 = none */
	int pidfd;   /* pid 1's */
	pid_t guest; /* as we see it */
	struct cb_cgroup group;
	struct cb_notifier notifier;
	int sockets; /* shows its sockets (broker/kernel_memory.c), where no control group counts them; -1 = none */
};
#define CB_INMATE_NONE                                                                                                 \
	((struct cb_inmate){ .pidfd = -1, .group = CB_CGROUP_EMPTY, .notifier = CB_NOTIFIER_NONE, .sockets = -1 })

/* broker/launch.c: builds one jail; used by broker/broker.c and broker/run.c. */
int cb_jail_launch(struct cb_jail *jail, struct cb_inmate *ret_inmate, struct cb_err *err);
/* The next jail starts without what the last ones installed or deleted in the interpreter's prefix, and says so. */
void cb_jail_drop_packages(struct cb_jail *jail);
/* After the end of pid 1: reaps it, reads the last figures of its group and removes that. */
void cb_jail_ended(struct cb_jail *jail, struct cb_inmate *inmate, struct cb_cgroup_figures *ret_figures);

/* init/init.c: pid 1 after the steps: forks and execs the guest, then reaps, forwards, reports. Does not return. */
_Noreturn void cb_init_main(struct cb_jail *jail);

/* report/explain.c, report/doctor.c */
int cb_explain_main(int spec_fd, bool json);
int cb_doctor_main(bool json, const char *kernelspec);
/* Names the cause found on this host and the cure for a failed step (sysctls, AppArmor, container profile …); fills
 * err->text and err->cure. */
void cb_diagnose(const char *step, int code, struct cb_err *err);
