/* The layer of changes of an overlay workspace, seen from outside: listing it, writing it through.
 *
 * Trust domain: broker's child, outside, with the broker's rights. What lies in the layer was made by hostile code; the
 * folder below may be changed by others at any time.
 */
#pragma once

#include "../shared/jail.h"
#include "../judge/judge.h"
#include "links.h"

#include <cellblock/json_write.h>
#include <limits.h>
#include <sys/stat.h>

#define CB_LAYER_REPORT_MAX (4u << 20) /* bytes of a report */
#define CB_LAYER_DEPTH_MAX 150	       /* folders in folders: two descriptors each */

enum cb_change {
	CB_CHANGE_ADDED,
	CB_CHANGE_MODIFIED,
	CB_CHANGE_DELETED,
	CB_CHANGE_SKIPPED,
	CB_CHANGE_FAILED,
	CB_CHANGES
};

struct cb_layer {
	const struct cb_jail *jail;
	bool commit;
	dev_t dev;   /* of the workspace: what is mounted in it is left alone */
	uid_t owner; /* started by root: on whose behalf the workspace is written */
	gid_t group;
	/* what a commit may write: as much as the layer can hold. Cells that go on while it works could give it more */
	uint64_t room, entries_left;
	struct timespec since; /* the entry's that is being removed */
	bool moved;	       /* what is looked at is in a folder that others have put there */
	int root;	       /* the workspace's folder */
	struct cb_links names; /* files of the layer with several names, and the first of the workspace that is them */
	struct cb_buf entries;
	bool truncated; /* entries had no room; the counts are right */
	size_t count[CB_CHANGES];
	char target[PATH_MAX]; /* of the link that is looked at, read once: cells can exchange it meanwhile */
	struct cb_judge judge; /* over the workspace, with the layer beside it */
	struct cb_strv own;    /* its paths */
	struct cb_leads leads[2];
};

/* One entry of the layer and what lies in its place in the workspace. */
struct cb_layer_entry {
	const char *path, *name; /* path: from the workspace */
	int upper, lower;	 /* the folders that hold them; lower -1 = none */
	struct stat st, old;
	bool exists;	       /* old is set */
	struct timespec since; /* when cells changed it, at the earliest */
	/* as judged: */
	enum cb_git_part part;
	bool maker, about_git, in_git;
};

/* What is to come into an entry's place, in the same folder under a name of its own. */
struct cb_layer_made {
	char name[64];
	struct stat st;
};

/* overlay_changes.c: looks through the layer, or writes it through, and makes the reply's JSON. Never fails without
 * saying so in the reply. */
void cb_layer_report(const struct cb_jail *jail, bool commit, struct cb_buf *out);
/* In the process that works on it: from this signal on nothing more is begun, and the reply says that it is not all. */
void cb_layer_stop_on(int signal);
/* Whether it has come. */
bool cb_layer_stopped(void);
/* How many changes there are; 0 also where there is no overlay. */
size_t cb_layer_changed(const struct cb_jail *jail);
/* From here on file systems are used as the workspace's owner does, or with our own rights again. */
void cb_layer_as_owner(const struct cb_layer *layer, bool on);
/* 0, or why the workspace's entry, in the folder `lower`, may not be written: -EROFS, and then it has been reported as
 * skipped; -ESTALE where the folder has been moved. `alone`: what is in the layer does not count. ret may be NULL: else
 * it gets what is to be kept in mind of the judgement. */
int cb_layer_judge(struct cb_layer *layer, int lower, const char *path, enum cb_act act, const struct stat *st,
		   bool alone, struct cb_layer_entry *ret);
/* As the owner, before an entry is replaced: -ESTALE where its folder, or what lies in its place, is not that which was
 * judged and seen; -EROFS where it would make a repository of its folder by now, or that is one. */
int cb_layer_still(const struct cb_layer *layer, const struct cb_layer_entry *e);
/* As the owner, before an entry is removed, and of a folder before what is in it: true, and reported as skipped, if
 * others changed it after layer->since. */
bool cb_layer_is_newer(struct cb_layer *layer, const char *path, const struct stat *st);

/* What snapshots share with this: */
/* The layer's folder of changes and the workspace, verified; sets the rights to use the latter with. */
int cb_layer_open_both(struct cb_layer *layer, int *ret_upper, int *ret_lower);
int cb_layer_list(int dirfd, struct cb_strv *ret_names); /* the names in a folder, sorted, added to what is there */
bool cb_layer_is_opaque(int dirfd);			 /* a folder that was made anew: it hides the one below */
bool cb_layer_is_whiteout(const struct stat *st);
void cb_layer_put_error(struct cb_json *j, const char *ename, const char *evalue); /* the members of such a reply */

/* write.c: a plain file for reading, without waiting for anything; its fd, or negative errno. */
int cb_layer_open_file(int dirfd, const char *name, struct stat *ret_st);
int cb_layer_read_link(int dirfd, const char *name, char target[PATH_MAX]);
/* Data only: a file of holes stays one. What is written is taken from *room, if that is not NULL; CB_E_TOO_BIG when
 * that is used up. */
int cb_layer_copy_data(int from, int to, off_t size, bool can_stop, uint64_t *room);
/* `skip_holes`: what is a hole in both is not read, which may be more than there is time for. */
bool cb_layer_same_data(int a, int b, bool skip_holes);
/* write.c: makes what is to become an entry of the workspace, beside it: 0, or negative errno, and then nothing is
 * left; -EROFS of an index that git outside must not read. */
int cb_layer_make_file(struct cb_layer *layer, const struct cb_layer_entry *e, struct cb_layer_made *ret);
/* As one more name of a file that is in the workspace already. */
int cb_layer_make_name(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file,
		       struct cb_layer_made *ret);
int cb_layer_make_link(const struct cb_layer *layer, const struct cb_layer_entry *e, struct cb_layer_made *ret);
/* Puts it into the entry's place, where no folder may be, atomically; or else it goes: -EROFS of what would make a
 * repository of a folder. */
int cb_layer_put(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_layer_made *made);
void cb_layer_drop_made(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_layer_made *made);
/* Open to its owner, for what goes into it. */
int cb_layer_write_folder(const struct cb_layer *layer, const struct cb_layer_entry *e);
/* The same for a folder that is there, which is then `ret`; and its mode when all is in it, if others have not set one
 * meanwhile. `agreed`: the layer's has that, too. */
void cb_layer_unlock_folder(const struct cb_layer *layer, int folder, struct stat *ret);
void cb_layer_lock_folder(const struct cb_layer *layer, int folder, const struct stat *unlocked, mode_t mode,
			  bool agreed);
/* Removes what is in the entry's place; what is protected in it, or newer, stays and is reported, and then so does it:
 * -ENOTEMPTY. */
int cb_layer_remove(struct cb_layer *layer, int lower, const char *name, const char *path, int depth);
bool cb_layer_same_file(const struct cb_layer *layer, const struct cb_layer_entry *e);
bool cb_layer_same_link(const struct cb_layer *layer, const struct cb_layer_entry *e);
