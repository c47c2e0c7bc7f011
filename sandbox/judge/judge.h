/* The judge of names: whether an entry of a workspace may be changed, removed or made. One rule for what is there and
 * what is not, used by every program that writes a workspace on a jail's behalf. Of some files it judges the content,
 * too: git's index and references.
 *
 * It looks at the entry's name, at each folder above it, at where links of protected names lead, and at nothing else;
 * it writes nothing, and remembers these links alone. What it says holds for the moment: a caller judges and acts with
 * no act of its own between the two, and acts on (parent, name), not on the path. What patterns mean is said in
 * judge.c, what may be written in a git folder in git.c, in references in refs.c, in an index in index.c, where links
 * may lead in links.c, and where those lead that bear a protected name in leads.c.
 */
#pragma once

#include <cellblock/sandbox.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#define CB_FOLLOW_MAX 40 /* links on one way, as the kernel's own: a longer one leads nowhere */

struct cb_judge {
	int root;   /* the workspace, O_PATH or readable: what is there counts */
	int beside; /* another folder of the same shape, -1 = none: what is there counts as if it were in the workspace,
		       and folders may be missing in one of the two. Its file system gives names no short ones */
	const struct cb_strv *patterns; /* workspace.protect */
	const struct cb_strv *paths;	/* from the workspace, see cb_judge_paths: these, what is below them, and their
					   parents' names */
	const char *workspace;		/* its path, see cb_judge_workspace; NULL: no link may have a whole path */
	const char *above;		/* names that a pattern may begin with above the workspace, see cb_judge_above;
					   NULL = none */
	struct cb_leads *leads;		/* two, for leads.c, which fills them: NULL = not looked for */
};

/* Where links that bear a protected name lead, as they were looked at last. */
struct cb_lead_stamp {
	dev_t dev;
	ino_t ino;
	struct timespec changed;
};
struct cb_leads {
	pthread_mutex_t lock; /* the first one's is for both */
	const char *source;   /* where the workspace is for programs outside; NULL = unknown */
	struct cb_strv paths;
	bool too_many, looked;
	struct timespec at;
	struct cb_lead_stamp stamps[2];
};
#define CB_LEADS_NONE ((struct cb_leads){ .lock = PTHREAD_MUTEX_INITIALIZER })

enum cb_act {
	CB_ACT_CHANGE, /* what is there: opened for writing, truncated, attributes set */
	CB_ACT_REMOVE, /* unlinked, removed as a folder, renamed away */
	CB_ACT_LINK,   /* gets a second name elsewhere */
	CB_ACT_MAKE,   /* comes into being here: created, or target of mkdir, rename, link, symlink, mknod, bind */
};

enum cb_git_part {
	CB_GIT_OTHER,
	/* These say what git writes where, and git believes them. They come into being by rename alone, as what
	   cb_judge_git_file has read; what is there is not opened for writing, linked or renamed away. */
	CB_GIT_INDEX,
	CB_GIT_REF, /* all below refs, and HEAD and its like */
	CB_GIT_PACKED_REFS,
	/* The file that is renamed onto one of them: whoever has made that may write, remove and rename it, and nobody
	   else. */
	CB_GIT_LOCK,
};

struct cb_judged {
	int parent;	  /* the folder that holds the entry, O_PATH, reached without following a link; the caller
			     closes it. -1 on failure, and where only `beside` has that folder */
	const char *name; /* last component, in `path`; "" for the workspace itself */
	bool maker;	  /* MAKE: a name that git knows a repository by, see cb_judge_made */
	dev_t git_dev;	  /* the innermost git folder that the entry lies in; git_ino 0 = none */
	ino_t git_ino;
	bool about_git;		    /* some pattern is about git: else nothing is looked after for it */
	bool in_git;		    /* and it lies in a git folder, see cb_git_mode */
	enum cb_git_part part;	    /* what the caller has to see to besides */
	char refused[NAME_MAX + 1]; /* with -EROFS: the pattern of workspace.protect that says so */
};

/* `path`: from the workspace, resolved: no empty, "." or ".." part, -EINVAL else; "" is the workspace itself.
 * `type`: S_IFMT bits of what is there or is to be made.
 * `content`: for MAKE of a folder that is moved here, its descriptor; else -1.
 * 0: may be done. -EROFS: refused. -ENOENT also for what is refused and is not there. -ELOOP: a component is a link.
 * Other negative: it can't be looked at, so it may not be done.
 * A rename is REMOVE of the source and MAKE of the target; an exchange is both for either. */
int cb_judge(const struct cb_judge *judge, const char *path, enum cb_act act, mode_t type, int content,
	     struct cb_judged *ret);
/* Whether some pattern is about git: see about_git. */
bool cb_judge_about_git(const struct cb_judge *judge);
/* A second name `to` for the entry `from`, which S_IFMT bits `type` say may be a symbolic link: both are judged, and
 * neither leads into a git folder or out of it. Where a link leads from there is left to cb_judge_link_text. */
int cb_judge_link(const struct cb_judge *judge, const char *from, const char *to, mode_t type,
		  struct cb_judged *ret_from, struct cb_judged *ret_to);
/* Whether git would take the folder (two, of which each may be -1, together) for a repository: 1, 0 or negative. */
int cb_git_is_folder(const int folders[2]);
/* Whether a folder, `self`, -1 = not made yet, is called as git's are: ".git", or x.git unless git outside has checked
 * out into it. */
bool cb_git_is_named(const char *name, int self);
/* What of a mode an entry of a git folder gets: no other user may write it who could not do so before, and could not
 * write its folder, `folder`, either. -1 has none. */
mode_t cb_git_mode(int folder, const char *name, mode_t mode);
/* After an entry was made whose judgement says `maker`: -EROFS if its folder is a repository now, since somebody else
 * made another part of it meanwhile (two jails in one folder). The caller then takes back what it did. */
int cb_judge_made(const struct cb_judged *judged);

/* What is looked through below a folder: no more is let through unseen. */
#define CB_TREE_ENTRIES_MAX 100000u
#define CB_TREE_DEPTH_MAX 1000u /* of which each takes some hundred bytes of the notifier's stacks */
/* Whether a folder may become `to`, with all that is below it: -EROFS; -EPERM as of cb_judge_target, for a link in it;
 * -EXDEV where it can't be looked through. */
int cb_judge_moved(const struct cb_judge *judge, int folder, const char *to);

/* bytes */
#define CB_INDEX_MAX (256u << 20)
#define CB_PACKED_REFS_MAX (64u << 20)
#define CB_REF_MAX (PATH_MAX + 16u)
/* Whether git, whatever its version, reads nothing from this index but names that it would let in: 0, or -EROFS. What
 * follows the names, and could say something else, is taken out; git makes it again. */
int cb_judge_index(void *data, size_t *n);
/* What `fd` reads is to be a file of the git folder `folder`, of a part that is judged: what may be put there,
 * malloc'd, or -EROFS. */
int cb_judge_git_file(enum cb_git_part part, int folder, int fd, char **ret_data, size_t *ret_n);

/* Whether the entry `path` may be a symbolic link to `target`: -EPERM where that leads out of the workspace, or may
 * come to; -EROFS where it leads to what is protected in it. So, too, where it leads to a folder with such below it,
 * and -EPERM where that can't be looked through. See links.c and tree.c. */
int cb_judge_target(const struct cb_judge *judge, const char *path, const char *target);
/* The same for the link that is `name` in `folder`, or `folder` itself where `name` is "". */
int cb_judge_link_text(const struct cb_judge *judge, const char *path, int folder, const char *name);
/* What `workspace` of a judge is: the path that the workspace has, where that is the same in the jail and outside. */
const char *cb_judge_workspace(const struct cb_jail_spec *spec);

/* spec->protect_paths that lie in the workspace, as `paths` wants them. */
int cb_judge_paths(const struct cb_jail_spec *spec, struct cb_strv *ret_paths);

/* Whether a workspace at this host path may be written: CB_E_DENIED where the path itself says that programs outside
 * act on what is in it. Names count from the nearest checkout (a folder with .git) downwards. */
int cb_judge_place(const struct cb_jail_spec *spec, struct cb_err *err);
/* The end of the workspace's path that patterns may begin with: `above`. */
const char *cb_judge_above(const struct cb_jail_spec *spec);
/* Shows what of each pattern is left for the workspace where the folders above it begin the pattern. */
typedef void (*cb_begun_fn)(void *arg, const char *rest);
void cb_judge_begun(const struct cb_jail_spec *spec, cb_begun_fn see, void *arg);
