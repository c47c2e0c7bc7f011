/* Deleting entries of the workspace, and emptying folders.
 *
 * Trust domain: a helper in the jail. Trees may be as deep and as wide as the guest likes, and may change while we
 * work: no link is followed, few descriptors are held, and what lies deeper than DEPTH_MAX is moved to the top and
 * dealt with there. What can't be deleted (protected entries) stays and is counted.
 */
#include "job.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 15	  /* folders open at a time; limits.open_files may be 32 */
#define ROUNDS_MAX 100000 /* the guest may go on making deep trees */
#define PROGRESS_EVERY 256

struct removal {
	struct cb_job *job;
	int top;
	uint64_t removed, left;
	unsigned moved;
	bool again; /* something deep was moved to the top */
	char first_left[NAME_MAX + 128];
};

static void count_removed(struct removal *r)
{
	static const struct cb_job_frame progress = { .op = CB_JOB_PROGRESS };

	if (++r->removed % PROGRESS_EVERY == 0)
		cb_job_send(r->job, &progress, NULL, 0);
}

static void count_left(struct removal *r, const char *name, int error)
{
	if (error == ENOENT)
		return; /* gone meanwhile */
	if (r->left++ == 0)
		snprintf(r->first_left, sizeof(r->first_left), "%s: %s", name, strerror(error));
}

static void empty(struct removal *r, int fd, unsigned depth);

static void move_up(struct removal *r, int fd, const char *name)
{
	char fresh[64];

	snprintf(fresh, sizeof(fresh), ".cellblock-deep-%u-%d", r->moved++, (int)getpid());
	if (renameat(fd, name, r->top, fresh) == 0)
		r->again = true;
	else
		count_left(r, name, errno);
}

/* Of a folder that can't be removed as it is. EBUSY, EROFS: something in it is protected; the rest of it may go. */
static bool is_filled(int error)
{
	return error == ENOTEMPTY || error == EEXIST || error == EBUSY || error == EROFS;
}

static void remove_folder(struct removal *r, int fd, const char *name, unsigned depth)
{
	uint64_t left = r->left;

	if (unlinkat(fd, name, AT_REMOVEDIR) == 0) {
		count_removed(r);
		return;
	}
	if (!is_filled(errno)) {
		count_left(r, name, errno);
		return;
	}
	if (depth == DEPTH_MAX) {
		move_up(r, fd, name);
		return;
	}
	CB_AUTO_FD sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (sub < 0) {
		count_left(r, name, errno);
		return;
	}
	empty(r, sub, depth + 1);
	if (unlinkat(fd, name, AT_REMOVEDIR) == 0)
		count_removed(r);
	else if (r->left == left) /* else the cause is counted */
		count_left(r, name, errno);
}

static void empty(struct removal *r, int fd, unsigned depth)
{
	static struct cb_dents dents[DEPTH_MAX + 1];
	const char *name;
	int code = 0;

	dents[depth].len = dents[depth].at = 0;
	while ((name = cb_dents_next(&dents[depth], fd, &code)) != NULL) {
		if (unlinkat(fd, name, 0) == 0)
			count_removed(r);
		else if (errno == EISDIR)
			remove_folder(r, fd, name, depth);
		else
			count_left(r, name, errno);
	}
	if (code < 0)
		count_left(r, "a folder", -code);
}

static void empty_top(struct removal *r)
{
	for (unsigned round = 0; round < ROUNDS_MAX; round++) {
		r->again = false;
		empty(r, r->top, 0);
		if (!r->again || lseek(r->top, 0, SEEK_SET) < 0)
			return;
	}
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
	r.top = -1;
	if (unlinkat(place.folder, place.name, 0) == 0) {
		r.removed = 1;
	} else if (errno != EISDIR) {
		cb_job_fail_path(job, path, -errno);
	} else if (unlinkat(place.folder, place.name, AT_REMOVEDIR) == 0) {
		r.removed = 1;
	} else if (!recursive || !is_filled(errno)) {
		cb_job_fail_path(job, path, -errno);
	} else {
		r.top = cb_job_open_folder(job, &place, path);
		empty_top(&r);
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

_Noreturn void cb_job_clean(struct cb_job *job)
{
	static struct removal r;
	struct cb_job_frame head = { .op = CB_JOB_DONE };
	struct cb_job_place place;
	char path[PATH_MAX];

	cb_job_place_of_request(job, CB_PLACE_FOLLOW, &place, path);
	r.job = job;
	r.top = cb_job_open_folder(job, &place, path);
	empty_top(&r);
	head.a = r.removed;
	head.b = r.left;
	cb_job_done(job, &head, r.first_left, strlen(r.first_left));
}
