/* Deleting entries of the workspace, and emptying folders.
 *
 * Trust domain: a helper in the jail. Trees may be as deep and as wide as the guest likes, and may change while we
 * work: no link is followed, and few descriptors are held. Below DEPTH_MAX one folder is open at a time, and is left by
 * its "..", if that is the folder that it was entered from. Nothing is moved: an overlay can't move folders that were
 * there before, nor may those move that hold what is protected. What can't be deleted stays and is counted, and apart
 * from the rest what the policy keeps: protected entries and mounts.
 */
#include "job.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 15	  /* folders open at a time; limits.open_files may be 32 */
#define LEVELS_MAX 65536u /* below these */
#define DEEP_MAX 1000000u /* folders there: the guest may go on making them */
#define WORD_EVERY_MS 1000 /* who says nothing for long is given up */

struct removal {
	struct cb_job *job;
	uint64_t removed, left;
	uint64_t kept; /* of those left: by the policy */
	unsigned deep; /* folders below DEPTH_MAX that were entered */
	int64_t told_ms;
	char first_left[NAME_MAX + 128]; /* one that is not kept, if there is any */
};

/* For each entry, removed or not: how long one takes depends on how deep it lies, and on what else goes on. */
static void at_work(struct removal *r)
{
	static const struct cb_job_frame progress = { .op = CB_JOB_PROGRESS };
	int64_t now = cb_now_ms();

	if (now - r->told_ms < WORD_EVERY_MS)
		return;
	r->told_ms = now;
	cb_job_send(r->job, &progress, NULL, 0);
}

static bool is_mount(int folder, const char *name)
{
	struct statx st;

	return statx(folder, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &st) == 0 &&
	       (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static void count_left(struct removal *r, int folder, const char *name, int error)
{
	bool kept = error == EROFS || (error == EBUSY && is_mount(folder, name));

	if (error == ENOENT)
		return; /* gone meanwhile */
	if (r->left == 0 || (!kept && r->left == r->kept))
		snprintf(r->first_left, sizeof(r->first_left), "%s: %s", name, strerror(error));
	r->left++;
	r->kept += kept;
}

/* Of a folder that can't be removed as it is. EBUSY, EROFS: something in it is protected; the rest of it may go. */
static bool is_filled(int error)
{
	return error == ENOTEMPTY || error == EEXIST || error == EBUSY || error == EROFS;
}

/* ---- what lies deep ---- */

struct level { /* a folder on the way down */
	dev_t dev;
	ino_t ino;
	uint64_t left; /* before it was entered */
	char *name;
};

static bool is_level(const struct level *level, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == level->dev && st.st_ino == level->ino;
}

static int open_folder(int folder, const char *name)
{
	return openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Removes what can be removed in the folder; true, and the first by name behind `after`, if there are folders left that
 * are filled. Those up to `after` have been dealt with; "" = it is looked at for the first time. */
static bool next_filled(struct removal *r, int fd, const char *after, char next[NAME_MAX + 1])
{
	static struct cb_dents dents;
	bool first = *after == '\0';
	const char *name;
	int code = 0;

	next[0] = '\0';
	dents.len = dents.at = 0;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return false;
	while ((name = cb_dents_next(&dents, fd, &code)) != NULL) {
		int error = unlinkat(fd, name, 0) == 0 ? 0 : errno;
		bool folder = error == EISDIR;

		at_work(r);
		if (folder && strcmp(name, after) <= 0)
			continue;
		if (folder)
			error = unlinkat(fd, name, AT_REMOVEDIR) == 0 ? 0 : errno;
		if (error == 0) {
			r->removed++;
		} else if (folder && is_filled(error)) {
			if (next[0] == '\0' || strcmp(name, next) < 0)
				snprintf(next, NAME_MAX + 1, "%s", name);
		} else if (first) {
			count_left(r, fd, name, error);
		}
	}
	if (code < 0)
		count_left(r, fd, "a folder", -code);
	return next[0] != '\0';
}

/* Enters `name` in *fd, which is exchanged for it. */
static int go_down(struct removal *r, struct level *level, int *fd, const char *name)
{
	CB_AUTO_FD sub = open_folder(*fd, name);
	struct stat st;

	if (sub < 0 || fstat(sub, &st) < 0)
		return errno;
	level->name = strdup(name);
	if (level->name == NULL)
		return ENOMEM;
	level->dev = st.st_dev;
	level->ino = st.st_ino;
	level->left = r->left;
	r->deep++;
	cb_fd_close(fd);
	*fd = cb_fd_take(&sub);
	return 0;
}

/* Removes the folder `name` in `fd`, or counts why not, unless what is left in it is counted. */
static void remove_emptied(struct removal *r, int fd, const char *name, uint64_t left)
{
	at_work(r);
	if (unlinkat(fd, name, AT_REMOVEDIR) == 0)
		r->removed++;
	else if (r->left == left)
		count_left(r, fd, name, errno);
}

/* Empties `top`, however deep it is, and leaves it as it is. */
static void empty_deep(struct removal *r, int top)
{
	static struct level levels[LEVELS_MAX];
	CB_AUTO_FD fd = fcntl(top, F_DUPFD_CLOEXEC, 0);
	char after[NAME_MAX + 1] = "", name[NAME_MAX + 1];
	unsigned n = 0;

	while (fd >= 0) {
		if (next_filled(r, fd, after, name)) {
			bool full = n == LEVELS_MAX || r->deep == DEEP_MAX;
			int error = full ? ENAMETOOLONG : go_down(r, &levels[n], &fd, name);

			if (error != 0)
				count_left(r, fd, name, error);
			n += error == 0;
			snprintf(after, sizeof(after), "%s", error == 0 ? "" : name);
			continue;
		}
		if (n == 0)
			return;
		n--;
		snprintf(after, sizeof(after), "%s", levels[n].name);
		free(levels[n].name);
		CB_AUTO_FD above = n > 0 ? openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
					 : fcntl(top, F_DUPFD_CLOEXEC, 0);
		if (n > 0 && (above < 0 || !is_level(&levels[n - 1], above))) {
			count_left(r, fd, after, ESTALE); /* moved away meanwhile */
			break;
		}
		cb_fd_close(&fd);
		fd = cb_fd_take(&above);
		remove_emptied(r, fd, after, levels[n].left);
	}
	while (n > 0)
		free(levels[--n].name);
}

/* ---- the first levels ---- */

static void empty(struct removal *r, int fd, unsigned depth);

static void remove_folder(struct removal *r, int fd, const char *name, unsigned depth)
{
	uint64_t left = r->left;

	if (unlinkat(fd, name, AT_REMOVEDIR) == 0) {
		r->removed++;
		return;
	}
	if (!is_filled(errno)) {
		count_left(r, fd, name, errno);
		return;
	}
	CB_AUTO_FD sub = open_folder(fd, name);

	if (sub < 0) {
		count_left(r, fd, name, errno);
		return;
	}
	if (depth == DEPTH_MAX)
		empty_deep(r, sub);
	else
		empty(r, sub, depth + 1);
	remove_emptied(r, fd, name, left);
}

static void empty(struct removal *r, int fd, unsigned depth)
{
	static struct cb_dents dents[DEPTH_MAX + 1];
	const char *name;
	int code = 0;

	dents[depth].len = dents[depth].at = 0;
	while ((name = cb_dents_next(&dents[depth], fd, &code)) != NULL) {
		at_work(r);
		if (unlinkat(fd, name, 0) == 0)
			r->removed++;
		else if (errno == EISDIR)
			remove_folder(r, fd, name, depth);
		else
			count_left(r, fd, name, errno);
	}
	if (code < 0)
		count_left(r, fd, "a folder", -code);
}

_Noreturn void cb_job_delete(struct cb_job *job)
{
	static struct removal r;
	bool recursive = (job->in.head.flags & CB_JOB_RECURSIVE) != 0;
	struct cb_job_frame head = { .op = CB_JOB_DONE };
	struct cb_job_place place;
	char path[PATH_MAX];

	cb_job_place_of_request(job, 0, &place, path);
	if (strcmp(place.name, ".") == 0)
		cb_job_fail(job, -EINVAL, "%.512s: a folder is deleted by its name%s", path,
			    place.is_root ? "; the workspace itself can only be emptied (op clean)" : "");
	r.job = job;
	if (unlinkat(place.folder, place.name, 0) == 0) {
		r.removed = 1;
	} else if (errno != EISDIR) {
		cb_job_fail_path(job, path, -errno);
	} else if (unlinkat(place.folder, place.name, AT_REMOVEDIR) == 0) {
		r.removed = 1;
	} else if (!recursive || !is_filled(errno)) {
		cb_job_fail_path(job, path, -errno);
	} else {
		empty(&r, cb_job_open_folder(job, &place, path), 0);
		if (unlinkat(place.folder, place.name, AT_REMOVEDIR) == 0)
			r.removed++;
		else if (r.left == 0)
			cb_job_fail_path(job, path, -errno);
	}
	if (r.left > 0)
		cb_job_fail(job, -ENOTEMPTY, "%llu entries in %.512s could not be deleted, the first: %s",
			    (unsigned long long)r.left, path, r.first_left);
	head.a = r.removed;
	cb_job_done(job, &head, NULL, 0);
}

static bool only_read(const struct cb_job *job)
{
	return job->jail->workspace_ro || job->jail->spec->workspace_mode == CB_WORKSPACE_RO;
}

_Noreturn void cb_job_clean(struct cb_job *job)
{
	static struct removal r;
	struct cb_job_frame head = { .op = CB_JOB_DONE };
	struct cb_job_place place;
	char path[PATH_MAX];

	cb_job_place_of_request(job, CB_PLACE_FOLLOW, &place, path);
	r.job = job;
	empty(&r, cb_job_open_folder(job, &place, path), 0);
	head.a = r.removed;
	head.b = r.left;
	if (!only_read(job)) /* else nothing is apart from the rest: all of it can't be emptied */
		head.c = r.kept < UINT32_MAX ? (uint32_t)r.kept : UINT32_MAX;
	cb_job_done(job, &head, r.first_left, strlen(r.first_left));
}
