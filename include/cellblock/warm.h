/* Warm start: the contract of a broker and a zygote.
 *
 * A zygote is an interpreter that has loaded all that a guest needs, and waits. It runs in a jail of its own, without
 * network, workspace or anything to write to but memory, and never runs anybody's code. A broker that has built a jail
 * asks it for a guest: the zygote makes a copy of itself there, which gives up all that the jail's guest may not have
 * before it goes on.
 *
 *	broker ──connect──► zygote's socket (SEQPACKET, in a folder that is its user's alone; its name is the key)
 *	zygote ──► broker: struct cb_warm_hello and the stamp: what was loaded, as it was then
 *	broker ──► zygote: struct cb_warm_request and its texts, with fds; or END: "what you have loaded is old"
 *	copy   ──► broker: struct cb_warm_answer, and the kernel says which process; with the notifier's listener
 *	broker ──► copy:   one byte: go on
 *
 * What fails on the way is told by an answer with an error, from the zygote or the copy; then there is no guest, and
 * the jail is given up. The copy registers with pid 1 (twin.h) as number 0 before it answers.
 */
#pragma once

#include <stdint.h>

#define CB_WARM_VERSION 1

/* In the folder, for each zygote: its socket KEY, and KEY.lock, which is locked as long as it lives. A file is removed
 * by who has locked it, and a lock counts only while its file has its name (sandbox.h: cb_warm_lock). The lock file is
 * empty while the zygote loads; then it is CB_WARM_SERVES, or CB_WARM_FAILED and why it can't serve. Its time is when
 * the zygote began to serve, or made its last copy. */
#define CB_WARM_SERVES '+'
#define CB_WARM_FAILED '-'
#define CB_WARM_WHY_MAX 1024 /* bytes */
#define CB_WARM_AGAIN_S 600 /* until one that could not serve is tried again */
#define CB_WARM_KEY_LEN 40 /* hex digits */

/* User namespaces of a zygote that no root has started, from its broker's down. */
#define CB_ZYGOTE_USERNS 2

/* fds that a zygote is born with, beside stdio and those of wire.h, which are /dev/null there */
#define CB_ZYGOTE_FD_LISTEN 10 /* bound, and not yet listening: that it does when it can serve */
#define CB_ZYGOTE_FD_LOCK 11   /* locked as long as it lives */
#define CB_ZYGOTE_FD_UID 12    /* where root has started it: the lease of its uid */

/* Its exit status if kernels that came from it live on; with any other it leaves nobody behind. */
#define CB_ZYGOTE_LEAVES 10

#define CB_WARM_STAMP_MAX 65536 /* bytes */

/* Followed by the stamp: lines "device inode size mtime ctime path", times in nanoseconds. */
struct cb_warm_hello {
	uint32_t version;
	uint32_t stamp_len;
};

enum cb_warm_op {
	CB_WARM_SPAWN = 1,
	CB_WARM_END = 2,  /* the zygote ends */
	CB_WARM_TELL = 3, /* answered with lines "word value": what `cellblock warm --list` shows */
	/* it ends, and is not tried again soon if it was of no use: it has loaded other files than brokers see */
	CB_WARM_OTHER = 4,
};

/* fds of a SPAWN, in this order; those whose bit in `present` is 0 are left out */
enum cb_warm_fd {
	CB_WARM_NS_USER, /* entered first */
	CB_WARM_NS_MNT,
	CB_WARM_NS_PID,
	CB_WARM_NS_NET,
	CB_WARM_NS_IPC,
	CB_WARM_NS_UTS,
	CB_WARM_NS_CGROUP,
	CB_WARM_RULES, /* Landlock's; absent where the kernel has none */
	CB_WARM_GROUP, /* files of control groups, open for writing: "0" puts the writer in */
	CB_WARM_GROUP_LAST = CB_WARM_GROUP + 3,
	CB_WARM_STDOUT, /* from here on the guest's own, see wire.h */
	CB_WARM_STDERR,
	CB_WARM_WIRE,
	CB_WARM_LOG,
	CB_WARM_TWIN_CONTROL,
	CB_WARM_REGISTRY,
	CB_WARM_SIDE,
	CB_WARM_PID1, /* pidfd of the jail's pid 1: the zygote keeps it, to know who lives */
	CB_WARM_NFDS
};

/* Programs of the system call filter, loaded in this order; the first has a listener, which goes to the broker. */
enum cb_warm_filter { CB_WARM_FILTER_NOTIFY, CB_WARM_FILTER_JAIL, CB_WARM_FILTER_LAST, CB_WARM_FILTERS };

/* Followed by: the filters' instructions, 8 bytes each, without those that have none; the working folder, with its 0;
 * NAME=VALUE for the environment, each with its 0. One packet. */
struct cb_warm_request {
	uint32_t op;
	uint32_t version;
	uint32_t present; /* bits of enum cb_warm_fd */
	uint32_t umask;
	uint32_t filter_len[CB_WARM_FILTERS]; /* instructions */
	uint32_t cwd_len;		      /* bytes, with the 0 */
	uint32_t env_len;
};

/* Namespaces, by enum cb_warm_fd, as /proc/PID/ns has them. */
#define CB_WARM_NAMESPACES                                                                                             \
	{ "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" }

/* Variables that differ from kernel to kernel of one zygote; all others are the zygote's own. */
#define CB_WARM_LATE_ENV                                                                                               \
	{ "CELLBLOCK_POLICY_SAYS", "CELLBLOCK_MESSAGE_MAX", "CELLBLOCK_PACKAGES", "JPY_SESSION_NAME" }

/* Where the way to a guest ended. */
enum cb_warm_step {
	CB_WARM_STEP_REQUEST,
	CB_WARM_STEP_THREADS,
	CB_WARM_STEP_GROUP,
	CB_WARM_STEP_NAMESPACES,
	CB_WARM_STEP_UID,
	CB_WARM_STEP_FORK,
	CB_WARM_STEP_SESSION,
	CB_WARM_STEP_FDS,
	CB_WARM_STEP_CAPABILITIES,
	CB_WARM_STEP_KEYRING,
	CB_WARM_STEP_RULES,
	CB_WARM_STEP_FILTER,
	CB_WARM_STEP_PARENT,
	CB_WARM_STEP_REVIVE,
	CB_WARM_STEP_READY /* the copy waits for "go on" */
};

struct cb_warm_answer {
	uint32_t step;
	int32_t error; /* negative errno; 0 with READY */
};
