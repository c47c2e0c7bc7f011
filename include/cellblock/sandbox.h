/* What the supervisor asks of the sandbox: the description of a jail, and the two links by which a jail is run.
 *
 *	supervisor ──SEQPACKET──► broker (`cellblock-jail broker`): SPAWN, KILL, …     struct cb_broker_request
 *	supervisor ──SEQPACKET──► pid 1 of a jail:                  SIGNAL, …, JOB     struct cb_init_msg
 *
 * The jail's description is given to the broker once, on a sealed memfd at exec time; later requests carry no
 * parameters, so that a supervisor that was taken over cannot ask for a jail with a hole. One broker serves one kernel
 * and one description; it may spawn again and again (a new jail after a death). It ends, with all its jails, when its
 * socket reaches end of file.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/host_memory.h>
#include <cellblock/warm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

/* ---- the description ---- */

/* SESSION: as RO, with a layer of changes over it if the kernel allows; for one source at most. */
enum cb_bind_mode { CB_BIND_RO, CB_BIND_RW, CB_BIND_SESSION };
enum cb_workspace_mode { CB_WORKSPACE_RW, CB_WORKSPACE_RO, CB_WORKSPACE_TMPFS, CB_WORKSPACE_OVERLAY };
enum cb_network_mode { CB_NETWORK_NONE, CB_NETWORK_FULL };

struct cb_bind {
	char *source; /* host path, absolute */
	char *target; /* path inside, absolute, no dot parts */
	enum cb_bind_mode mode;
	bool optional; /* a missing source is skipped */
	char *reason;  /* for explain: "interpreter prefix" */
};

struct cb_strv {
	char **items; /* owned, NULL-terminated */
	size_t count;
};

/* What a jail is made of: nothing but the protocol; Landlock, filter and limits of single processes; all walls, limits
 * without cgroups; all. */
enum cb_isolation_level { CB_LEVEL_NONE, CB_LEVEL_CONTAINER, CB_LEVEL_NO_CGROUP, CB_LEVEL_FULL };

struct cb_jail_spec {
	struct cb_strv argv;	/* command inside; argv[0] absolute */
	struct cb_strv env;	/* NAME=VALUE, complete: nothing else gets in */
	char *cwd;		/* inside */
	char *hostname;		/* "cellblock" */
	char *root_path;	/* folder of an unpacked image whose system is shown; NULL = this host's */
	char *workspace_source; /* host path; NULL with CB_WORKSPACE_TMPFS */
	char *workspace_target; /* path inside */
	char *workspace_note;	/* why the mode differs from what the policy says, for the banner; NULL = it does not */
	enum cb_workspace_mode workspace_mode;
	enum cb_network_mode network;
	bool notifier; /* cb_notify_probe() holds: calls of the jail can be served by name: sandbox/notifier/ */
	enum cb_isolation_level minimum; /* a jail weaker than this is refused */
	struct cb_bind *binds;		 /* interpreter prefixes, guest, policy's mounts; in mount order */
	size_t nbinds;
	struct cb_strv protect;	      /* workspace.protect: relative patterns, see sandbox/judge/judge.c */
	struct cb_strv protect_paths; /* absolute host paths (prefixes, kernelspecs, policy, history); those inside the
					 workspace are not written */
	struct cb_strv home_expose;   /* host files or folders below the home, shown read-only at the same place below
					 HOME inside */
	char *host_home;	      /* the home that home_expose is relative to */
	uint64_t limit_memory;	      /* of the whole jail in bytes (cgroup, else watchdog), 0 = none */
	char *limit_memory_note;      /* why it is less than the policy says; NULL = it is not */
	uint64_t limit_cpu;	      /* of the whole jail: microseconds in each 100 ms (cgroup), 0 = none */
	uint64_t limit_data;	      /* RLIMIT_DATA in bytes, 0 = none */
	uint64_t limit_pids;	      /* RLIMIT_NPROC inside the user namespace */
	uint64_t limit_open_files;
	uint64_t limit_file_size; /* 0 = none */
	uint64_t limit_tmp;	  /* bytes of /tmp and of the home, each */
	uint64_t limit_shm;	  /* bytes of /dev/shm */
	uint64_t limit_inodes;	  /* of each tmpfs */
	uint64_t limit_workspace; /* bytes of the workspace with modes tmpfs and overlay; 0 = limit_tmp */
	char *warm_folder;	  /* host path: where sockets of zygotes are (warm.h); NULL = no warm start */
	struct cb_strv warm_preload; /* modules that a zygote loads beside the guest's own; none without a folder */
};

#define CB_SPEC_MAX (1u << 20) /* bytes of an encoded description */
#define CB_PRELOAD_MAX 64      /* names in warm_preload */
#define CB_PRELOAD_NAME_MAX 255
#define CB_JAIL_HOME "/home/user"

void cb_jail_spec_release(struct cb_jail_spec *spec); /* frees all members; NULL and half-built allowed */
/* Is it a description that a jail can be built from? Names the member and what is wrong with it. */
int cb_jail_spec_check(const struct cb_jail_spec *spec, struct cb_err *err);
/* Encodes into a sealed memfd, to be inherited as --spec-fd. CB_E_SYNTAX if the check says no, CB_E_TOO_BIG over
 * CB_SPEC_MAX. */
int cb_jail_spec_to_fd(const struct cb_jail_spec *spec, int *ret_fd);
int cb_jail_spec_from_fd(int fd, struct cb_jail_spec *ret_spec, struct cb_err *err);

/* String vectors: items are copied. */
int cb_strv_add(struct cb_strv *v, const char *item);
/* One of a folder's, of which there are more than a jail's lists hold. */
int cb_strv_add_name(struct cb_strv *v, const char *name);
int cb_strv_addf(struct cb_strv *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool cb_strv_has(const struct cb_strv *v, const char *item);
void cb_strv_release(struct cb_strv *v);
#define CB_AUTO_STRV __attribute__((cleanup(cb_strv_release))) struct cb_strv
int cb_spec_add_bind(struct cb_jail_spec *spec, const char *source, const char *target, enum cb_bind_mode mode,
		     bool optional, const char *reason);

/* ---- broker ---- */

enum cb_broker_op {
	CB_BROKER_SPAWN = 1,
	CB_BROKER_KILL = 2,
	/* with a pipe, which gets the content of a reply and is closed then; of the overlay workspace's changes: */
	CB_BROKER_CHANGES = 3, /* lists them */
	CB_BROKER_COMMIT = 4,  /* writes them through, and lists what was done */
	CB_BROKER_LOOK = 6,    /* of a writable one: its size */
	/* `jail` is the snapshot's number; counts and the first entry that could not be kept or brought back: */
	CB_BROKER_SNAPSHOT = 7, /* keeps the changes, from here on beside them */
	CB_BROKER_RESTORE = 8,	/* makes the workspace what it was, if all in the jail but pid 1 is stopped */
	CB_BROKER_FORGET = 9,	/* a snapshot */
	CB_BROKER_DISCARD = 5, /* lists and forgets them: the next jail starts without; the living one must be killed */
	CB_BROKER_STOP = 20,   /* without a pipe: what is under way of these ends soon, and says what it has done */
	CB_BROKER_DROP = 21, /* without a pipe: the next jail starts without the layer over the interpreter's prefix */
	/* of `pid`, a process of the jail; for the kernel when it kills for lack of memory: */
	CB_BROKER_OOM_FIRST = 22, /* a guest, which goes first, with what it starts. So does the first one, unasked */
	CB_BROKER_OOM_LAST = 23,  /* a twin */
};

struct cb_broker_request {
	uint32_t op;
	uint32_t jail; /* KILL, OOM_FIRST, OOM_LAST: the number from the reply to SPAWN; SPAWN: the asker's own number,
			  for the reply; SNAPSHOT to FORGET: the snapshot's, above 0 and never used twice */
	int32_t pid;   /* OOM_FIRST, OOM_LAST: as the host sees it */
};

/* fds of a SPAWN request, in this order: the guest's ends and pid 1's end */
enum {
	CB_SPAWN_WIRE,
	CB_SPAWN_STDOUT,
	CB_SPAWN_STDERR,
	CB_SPAWN_LOG,
	CB_SPAWN_LINK,
	CB_SPAWN_TWIN_CONTROL,
	CB_SPAWN_SIDE,
	CB_SPAWN_NFDS
};

/* fds of a reply with code 0: pid 1's pidfd, then files to read what the jail uses (cgroup; /dev/null where there is
 * none) */
enum cb_usage_fd {
	CB_USAGE_EVENTS,
	CB_USAGE_PEAK,
	CB_USAGE_CPU,
	CB_USAGE_MEMORY,
	CB_USAGE_STAT,
	CB_USAGE_PEAK_EVER, /* with swap; version 1 */
	CB_USAGE_NFDS
};

enum cb_broker_event {
	CB_BROKER_SPAWNED = 1, /* the answer to SPAWN; exactly one for each. Code 0: the guest's exec has succeeded */
	CB_BROKER_ENDED = 2,   /* unasked: a jail has ended, and all in it; oom … are its last figures */
	/* unasked, where no control group holds limits.memory: a jail is near it or over it, and is killed if it stays
	   over it: `watchdog` and `anonymous`. Again with each look at it */
	CB_BROKER_MEMORY = 3,
};

/* limits.memory: from here on memory is short, and something may be given up. */
#define CB_MEMORY_SHORT(limit) ((limit) - (limit) / 8)

struct cb_broker_reply {
	uint32_t event;
	int32_t code;	 /* 0 or a negative code; then step, text and cure are set */
	uint32_t number; /* the SPAWN's: an answer that comes too late is not taken for another */
	uint32_t jail;
	int32_t guest_pid;    /* as the host sees it */
	uint32_t level;	      /* enum cb_isolation_level reached */
	uint32_t warm;	      /* 1: the guest came from a zygote */
	struct cb_oom_count oom; /* ENDED: processes that the kernel killed for lack of memory in the jail's group */
	uint64_t watchdog;    /* ENDED: bytes at which the watchdog killed the jail; 0 = it did not. MEMORY: bytes */
	uint64_t anonymous;   /* MEMORY: the part that belongs to no file, each page once; 0 = not known */
	int64_t looked_ms;    /* MEMORY: when that look began, monotonic */
	uint64_t memory_peak; /* ENDED: bytes; 0 = not known */
	char step[64];
	char text[768];
	char cure[512];
	char note[512]; /* what the user should know although it worked, e.g. "workspace: …"; may be empty. ENDED: why
			   the jail was killed, where that is not memory */
	char limits[256]; /* who holds the limits: "cgroup v1: memory, pids, cpu", "no cgroup: …" */
};

struct cb_broker {
	int fd; /* SEQPACKET, non-blocking, for the loop: readable = a reply, EOF = broker died */
	pid_t pid;
};

#define CB_BROKER_NONE ((struct cb_broker){ .fd = -1 })

/* Forks and execs `jail_program` (absolute path) as broker. To be called while the process is single-threaded and holds
 * no secret. */
int cb_broker_start(const char *jail_program, const struct cb_jail_spec *spec, struct cb_broker *ret_broker,
		    struct cb_err *err);
/* `number` comes back in the reply. The caller closes its copies of the fds afterwards. */
int cb_broker_spawn(struct cb_broker *b, uint32_t number, const int fds[CB_SPAWN_NFDS]);
int cb_broker_kill(struct cb_broker *b, uint32_t jail);
/* CHANGES to FORGET; `number` is a snapshot's, else 0 */
int cb_broker_layer(struct cb_broker *b, enum cb_broker_op op, uint32_t number, int pipe_fd);
int cb_broker_tell(struct cb_broker *b, enum cb_broker_op op);				  /* STOP, DROP */
int cb_broker_score(struct cb_broker *b, enum cb_broker_op op, uint32_t jail, pid_t pid); /* OOM_FIRST, OOM_LAST */
/* One reply, or -EAGAIN, or CB_E_CLOSED. The fds are -1 unless it is SPAWNED with code 0. ret_usage may be NULL. */
int cb_broker_recv(struct cb_broker *b, struct cb_broker_reply *ret_reply, int *ret_pidfd,
		   int ret_usage[CB_USAGE_NFDS]);
void cb_broker_stop(struct cb_broker *b); /* closes the socket: all jails die; reaps the broker */

/* ---- pid 1 ---- */

enum cb_init_op {
	CB_INIT_SIGNAL = 1,    /* to pid 1: send `arg` to the process group of the guest, or of branch `number` */
	CB_INIT_TERMINATE = 2, /* to pid 1: kill everything and exit */
	CB_INIT_NUDGE = 3,     /* to pid 1: send `arg` to its main process alone */
	CB_INIT_JOB = 4,       /* to pid 1, with a socket: start a helper that serves it, see job.h */
	/* about twins, see twin.h; `arg` is a twin's number: */
	CB_INIT_TWIN = 5,    /* to pid 1: a process may register; twin `number`, of which it is bred, may run */
	CB_INIT_DROP = 6,    /* to pid 1: kill it; a branch with all that it has started */
	CB_INIT_RESTORE = 7, /* to pid 1: kill all but what is registered, which stays stopped; it becomes the guest */
	CB_INIT_BRANCH = 8,  /* to pid 1: it runs from now on, beside the guest */
	CB_INIT_GO_ON = 9,   /* to pid 1, after RESTORED: what is stopped runs again, but for twins; no `arg` */
	CB_INIT_EXITED = 16, /* from pid 1: the guest's main process ended; `arg` is the wait status. pid 1 then kills
				the rest and exits, unless there is a twin */
	CB_INIT_REGISTERED = 17, /* from pid 1 */
	CB_INIT_GONE = 18,	 /* from pid 1: a twin or branch has ended, and what a branch had started */
	CB_INIT_RESTORED = 19,	 /* from pid 1: all others are dead, and all but pid 1 stopped until GO_ON */
	CB_INIT_SIGNALLED = 20,	 /* from pid 1, for each SIGNAL and NUDGE: it has been sent */
	CB_INIT_STUCK = 21,	 /* from pid 1, which then ends: others could not be killed; `status` of them hide */
};

struct cb_init_msg {
	uint32_t op;
	int32_t arg;
	uint32_t number; /* SIGNAL, NUDGE, SIGNALLED: a branch's; 0 = the guest. TWIN: a twin's; 0 = none */
	int32_t status;	 /* GONE: the wait status of one that ended by itself. STUCK: a number of processes */
};

/* ---- calls served by name ---- */

/* Whether this kernel, and what it was started in, let a process serve calls of another: 0 or why not. Forks. */
int cb_notify_probe(void);
#define CB_NOTIFIER_NAME "cellblock-names" /* of that process, a child of the broker */

/* ---- warm start ---- */

/* Opens the folder of zygotes' sockets (warm.h), with `make` after making it and the one above it. -ENOENT if it is not
 * there. -EPERM if one of the two is not ours alone: a link, another user's, or one that others may write; the last one
 * nobody else may even enter. */
int cb_warm_folder_open(const char *path, bool make, int *ret_fd, struct cb_err *err);
/* The keys of all locks in it, in order: CB_WARM_KEY_LEN digits and a 0 each. -E2BIG: there are more than `max`. */
int cb_warm_keys(int folder, char (*ret_keys)[CB_WARM_KEY_LEN + 1], size_t max, size_t *ret_count);
/* Locks a key's file, which has to be there; `how`: LOCK_SH or LOCK_EX. -EWOULDBLOCK: a zygote lives; -ENOENT: there is
 * none, or it was removed just now. */
int cb_warm_lock(int folder, const char *key, int how, int *ret_fd);
/* The name of a key's lock file. */
#define CB_WARM_LOCK_NAME (CB_WARM_KEY_LEN + sizeof(".lock"))
void cb_warm_lock_name(const char *key, char ret[CB_WARM_LOCK_NAME]);
/* Whether the last one of a key, whose lock we have, could not serve and is not to be tried again yet. Why, empty if it
 * ended without a word; in its own words, that may be anything. */
bool cb_warm_has_failed(int lock, char ret_why[CB_WARM_WHY_MAX]);
/* Removes the files of a key whose lock we have. */
void cb_warm_remove(int folder, const char *key, int lock);
/* Where its socket is: by the folder's descriptor, so that its path may be longer than an address. */
struct sockaddr_un cb_warm_address(int folder, const char *key);

/* ---- unprivileged host uids, for processes started by root ---- */

/* Whether we are the host's own root. Root of a rootless container is an ordinary user outside, and treated as one. */
bool cb_is_host_root(void);
/* Picks a host uid (= gid) that no account uses and no other kernel of ours holds, valid in the present user namespace.
 * The lock is held as long as *ret_lock_fd stays open. Only for euid 0. */
int cb_uid_lease(uid_t *ret_uid, int *ret_lock_fd, struct cb_err *err);
/* Gives it back, when no process has the uid any more; -1 allowed. A process that just ends leaves a file, which the
 * next lease removes. */
void cb_uid_release(int *lock_fd);
