/* The calls that are notified, as a table: what the filter asks for, what the notifier serves, what docs/syscalls.md
 * lists. And what the notifier's files share.
 */
#pragma once

#include "../judge/judge.h"
#include "notifier.h"

#include <cellblock/fd.h>
#include <linux/seccomp.h>
#include <sys/stat.h>

/* Where no argument is meant. */
#define CB_NO_ARG (-1)

enum cb_notify_kind {
	CB_NOTIFY_WRITE,      /* always */
	CB_NOTIFY_WRITE_OPEN, /* where the flags, argument `a`, would write */
	CB_NOTIFY_WRITE_ASK,  /* where W_OK is among what is asked for, argument `a` */
	CB_NOTIFY_BIND,
	CB_NOTIFY_CONNECT,
};

struct cb_request;

/* Numbers of arguments. `at`: a folder's descriptor, CB_NO_ARG = the working folder. */
struct cb_notify_call {
	const char *name;
	int nr;
	enum cb_notify_kind kind;
	void (*serve)(struct cb_request *q);
	int at, path, a, b; /* a and b: what serve() needs beside: flags, modes, lengths */
};
extern const struct cb_notify_call cb_notify_calls[];
extern const size_t cb_notify_calls_count;

/* What lies behind a path, as the caller sees it. */
struct cb_entry {
	char path[4096];  /* relative to the workspace, resolved */
	int parent;	  /* the folder that holds it, O_PATH, as the jail sees it; owned */
	const char *name; /* last part of `path` */
	bool there;
	bool folder_meant; /* a slash at the end */
	bool itself;	   /* `parent` is the entry: the workspace, or a folder whose name is a matter of dots */
	int instead;	   /* what the call gets instead of going on: the kernel would name the mount; 0 = it goes on */
	int number;	   /* of the descriptor that was meant, also by a path; -1 = none */
	struct stat st;	   /* if it is there; of a link itself unless it was to be followed */
};
#define CB_ENTRY_NONE ((struct cb_entry){ .parent = -1, .number = -1 })
void cb_entry_release(struct cb_entry *e);
#define CB_AUTO_ENTRY __attribute__((cleanup(cb_entry_release))) struct cb_entry

#define CB_JUDGED_NONE ((struct cb_judged){ .parent = -1 })
static inline void cb_judged_release(struct cb_judged *j)
{
	cb_fd_close(&j->parent);
}
#define CB_AUTO_JUDGED __attribute__((cleanup(cb_judged_release))) struct cb_judged

/* What was read of a caller's memory, without what lies behind a string's end. */
struct cb_read {
	uint64_t address, hash;
	size_t size; /* PATH_MAX at most */
};
#define CB_READS_MAX 2 /* of one call: two names, or a name and times */

/* One notification. A handler sets one of: value and error, or go_on, or fd, or later. */
struct cb_request {
	const struct seccomp_notif *n;
	const struct cb_notify_call *call;
	int caller;    /* /proc/TID, O_PATH; owned, -1 until it is needed */
	enum cb_notify_from from;
	unsigned slot; /* in shared->busy[from] */
	int64_t value;
	int error;     /* 0 or a positive errno */
	int fd;	       /* to be put into the caller; owned */
	int made_in;   /* the folder in which that file was made by this call; owned, -1 = it was there */
	char made[256]; /* its name */
	bool cloexec;  /* that descriptor */
	bool empty;    /* its file, once the caller has it */
	struct cb_read reads[CB_READS_MAX];
	unsigned nreads; /* more than CB_READS_MAX: some are not known */
	bool go_on;    /* the kernel does the call as if nothing had been */
	bool later;    /* somebody else answers */
	int instead;   /* with go_on: this error, as of a file system that can be written; 0 = none */
};

#define CB_REQUEST(notification, from_, slot_)                                                                         \
	((struct cb_request){ .n = (notification),                                                                     \
			      .from = (from_),                                                                         \
			      .slot = (slot_),                                                                         \
			      .caller = -1,                                                                            \
			      .fd = -1,                                                                                \
			      .made_in = -1 })

/* An error that is no caller's: the call is to be done again, a little later. */
#define CB_TOO_NEW 4000

/* The notifier's own state, set before its threads start and not changed then. */
struct cb_notify_self {
	int listeners[CB_NOTIFY_FROMS]; /* -1 = none */
	int proc;      /* the /proc outside, O_PATH */
	int jail_root; /* O_PATH */
	bool writes;
	struct cb_judge judge;
	char target[4096]; /* where the workspace is in the jail */
	struct cb_notify_shared *shared;
};
extern struct cb_notify_self cb_notify_self;

static inline int cb_arg_int(const struct cb_request *q, int arg)
{
	return (int)q->n->data.args[arg];
}

static inline void cb_request_done(struct cb_request *q, int r)
{
	q->error = r < 0 ? -r : 0;
}

/* ---- notifier.c ---- */
/* Whether the caller still waits for it. */
bool cb_notify_valid(const struct cb_request *q);
/* Does what is asked for; with the error CB_TOO_NEW nothing. */
void cb_notify_serve(struct cb_request *q);
/* Sends the answer; closes what the request owns. */
void cb_notify_answer(struct cb_request *q);

/* ---- missed.c: answers that their callers have missed; every function locks for itself ---- */

/* Takes the request's descriptor over, if there is room. */
void cb_missed_keep(struct cb_request *q);
/* The same call has come again, and is answered. */
bool cb_missed_take(struct cb_request *q);

/* ---- path.c ---- */

/* Opens what /proc/TID/`what` is of the caller; sure to be the caller's. */
int cb_caller_open(struct cb_request *q, const char *what, int flags, int *ret_fd);
/* A descriptor of the caller, as its own: what is done to it is done to the caller's. */
int cb_caller_fd(struct cb_request *q, int number, int *ret_fd);
/* A number of /proc/TID/status, in the given base; negative if there is none. */
long cb_caller_status(struct cb_request *q, const char *key, int base);
/* Copies up to `max` bytes at `address` of the caller; fewer only at the end of its memory. */
ssize_t cb_caller_read(struct cb_request *q, uint64_t address, void *ret, size_t max);
int cb_caller_string(struct cb_request *q, uint64_t address, char *ret, size_t size);
/* What a path of the caller leads to, O_PATH, through no magic link; `at` as that of openat. */
int cb_caller_path(struct cb_request *q, int at, const char *path, int *ret_fd);
/* Whether that is there still. */
bool cb_caller_says_same(const struct cb_request *q, const struct cb_read *reads, unsigned n);
/* A signal that the caller would act on ends its wait, as it would end the call. */
bool cb_caller_interrupted(struct cb_request *q);
#define CB_FIND_FOLLOW 1u /* a link at the end */
#define CB_FIND_SELF 2u	  /* also the workspace itself, whose path is "", and folders named by dots */
#define CB_FIND_ENTRY 4u  /* a link at the end is what is meant, though a slash follows it */
/* Also the file of a descriptor that was got for writing: by one the kernel would do the call, and nobody judge it. */
#define CB_FIND_WRITABLE 8u
/* Finds an entry of the workspace. False: it is none, or the path leads nowhere; then the call goes on. */
bool cb_entry_find(struct cb_request *q, int at_arg, int path_arg, unsigned flags, struct cb_entry *ret);
/* The same for a string that is known already, with the folder's descriptor (-1: the caller's working folder; AT_FDCWD
 * likewise). */
bool cb_entry_find_string(struct cb_request *q, int at, const char *path, unsigned flags, struct cb_entry *ret);
/* What the judge has opened by its name is what the jail sees there. */
bool cb_entry_is_meant(const struct cb_entry *e, const struct cb_judged *j);
/* Of a descriptor of the caller that is not O_PATH. */
bool cb_entry_of_fd(struct cb_request *q, int fd, unsigned flags, struct cb_entry *ret);

/* What the call is about, whatever it is, where no entry `e` was found; the descriptor leads to that and nothing else.
 */
int cb_caller_meant(struct cb_request *q, const struct cb_entry *e, int *ret_fd);
/* Whether a notifier may have opened it: it lies on the workspace's writable mount, or is a file on a mount that may be
 * another jail's, which got it by a socket. */
bool cb_is_served(struct cb_request *q, int fd);

/* ---- links.c: what this jail itself has given names to; every function locks for itself ---- */

/* A file has got one name more by this jail, or lost one. */
int cb_links_added(const struct stat *st, const char *old_name, const char *new_name);
void cb_links_renamed(const struct stat *st, const char *name);
/* `st`: from before. */
void cb_links_removed(const struct stat *st);
/* Whether all its names are this jail's. */
bool cb_links_known(const struct stat *st);
/* The socket `name` is this jail's. -EBUSY: it was made before `since` (see cb_made_at; 0 = not known), so another than
 * the one that was just bound lies there. */
int cb_sockets_bound(int folder, const char *name, int64_t since);
/* `st` is what fstat says of `fd`. */
bool cb_sockets_known(int fd, const struct stat *st);

/* ---- made.c: what others have made a moment ago; every function locks for itself ---- */

/* This jail has made it: `name` in `at`, or `at` itself where the name is "". */
void cb_made_note(int at, const char *name);
/* The jail has opened `fd` for writing, or changed it, and that was `before` until then. If an overlay has copied the
 * file for that, from a lower layer, the copy is this jail's: true. */
bool cb_made_copied(int fd, const struct stat *before);
/* When it was made, in ns; 0 where the file system does not know. */
int64_t cb_made_at(int at, const char *name);
/* It loses a name by this jail; `st`: from before. */
void cb_made_removed(const struct stat *st);
/* -CB_TOO_NEW if it was made less than two seconds ago and not by this jail, else 0; so for folders, and where the file
 * system does not know. `st` is what fstat says of it. */
int cb_made_look(int at, const char *name, const struct stat *st);
/* The same of all that lies below a folder; -EXDEV where it can't be looked through. */
int cb_made_look_below(int folder);

/* ---- held.c: calls that are to be done later ---- */

/* False: too many wait already. */
bool cb_held_take(const struct cb_request *q);
/* The thread that does them. */
_Noreturn void cb_held_serve(void);

/* ---- told.c ---- */

/* Of the call that this thread serves: the name that is refused, if the kind's error becomes its answer. */
void cb_refused_by(enum cb_refused kind, const char *path, const char *about);
void cb_refused_forget(void);
/* `error` is its answer. */
void cb_refused_tell(int error);

/* ---- git.c: git's indexes and references, see enum cb_git_part; what is neither is let through ---- */

/* Whether an entry may be made in any other way than by opening it. */
int cb_git_make(const struct cb_judged *j);
/* The mode with which it is made, or that it is given. */
mode_t cb_git_mode_of(const struct cb_judged *j, mode_t mode);
/* `fd` is a lock's that this jail has just made. */
int cb_git_made(const struct cb_judged *j, int fd);
/* `fd` is the entry's, opened with `flags`. */
int cb_git_open(const struct cb_judged *j, int fd, int flags);
/* `st` is the entry's. */
int cb_git_remove(const struct cb_judged *j, const struct stat *st);
/* 1: it was moved here, 0: it is neither and waits to be moved. */
int cb_git_move(const struct cb_judged *from, const struct cb_judged *to, const struct stat *st);

/* ---- files.c ---- */

/* A folder that its owner has closed can't be looked into: for acts that what lies in it has no part in, its name says
 * enough. */
int cb_entry_judge_closed(const struct cb_entry *e, enum cb_act act, struct cb_judged *ret);
/* A file's bits and its other names decide as well: what runs with another's rights, and what has names that nobody
 * here has seen, is not written. */
int cb_entry_judge_file(const struct cb_entry *e, const struct stat *st, mode_t bits);
/* Whether `fd`, which was opened as the entry, still lies where that was judged. */
bool cb_entry_stays(const struct cb_entry *e, const struct cb_judged *j, int fd);
/* What others made meanwhile can make a repository of it: then it goes again, by unlinkat's `flags`. */
int cb_keep_made(const struct cb_entry *e, const struct cb_judged *j, int flags);

/* ---- attributes.c ---- */

/* The entry that a call is about. False: it is not there, or lies elsewhere, and the call goes on. */
bool cb_entry_find_there(struct cb_request *q, unsigned flags, struct cb_entry *ret);

/* ---- files.c, attributes.c, sockets.c ---- */
void cb_serve_open(struct cb_request *q);
void cb_serve_access(struct cb_request *q);
void cb_serve_mkdir(struct cb_request *q);
void cb_serve_mknod(struct cb_request *q);
void cb_serve_unlink(struct cb_request *q);
void cb_serve_rmdir(struct cb_request *q);
void cb_serve_unlinkat(struct cb_request *q);
void cb_serve_rename(struct cb_request *q);
void cb_serve_link(struct cb_request *q);
void cb_serve_symlink(struct cb_request *q);
void cb_serve_truncate(struct cb_request *q);
void cb_serve_chmod(struct cb_request *q);
void cb_serve_chown(struct cb_request *q);
void cb_serve_lchown(struct cb_request *q);
void cb_serve_utimens(struct cb_request *q);
void cb_serve_bind(struct cb_request *q);
void cb_serve_connect(struct cb_request *q);
/* Takes back what the call has made, as far as it is there still. */
void cb_unmake(const struct cb_request *q);
/* Held while entries are made, moved or removed. */
void cb_change_lock(void);
void cb_change_unlock(void);
/* The notifier's first thread: waits for connections that take their time, binds, and sees the end of the jail. */
_Noreturn void cb_sockets_wait(void);
int cb_sockets_init(const struct cb_jail_spec *spec);
int cb_sockets_init_thread(void); /* in each other thread that serves calls */
