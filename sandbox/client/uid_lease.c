/* Host uids for processes that root starts: never 0, never shared.
 *
 * Role: picks a uid (= gid) and holds it by a lock for as long as an fd stays open. Trust domain: supervisor and
 * broker, as root, at start. Libc only.
 *
 * The range is one that nobody gives out: above what sssd and winbind map (to 2000200000) and above systemd's
 * containers (to 0x6fffffff), below systemd's foreign uids (0x7ffe0000). Where a container does not map it, the highest
 * ids that are mapped. An id that /etc/passwd or /etc/group knows is passed over. The search starts at a random place:
 * two containers that share a range but not /run then hardly meet, and a uid is not soon used again.
 *
 * A lease's file goes with the lease: whoever ends well removes it, and each lease removes those that the dead left. A
 * file is removed by who has locked it, and a lock counts only while its file has its name.
 */
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "own_folder.h"
#include "uid_lease.h"

#define STEP "uid"

static const struct cb_uid_places host = { "/run/cellblock", "/proc/self/uid_map", "/proc/self/gid_map", "/etc/passwd",
					   "/etc/group" };

struct range {
	uint64_t first, count;
};

static struct range intersect(struct range a, struct range b)
{
	uint64_t first = a.first > b.first ? a.first : b.first;
	uint64_t a_end = a.first + a.count, b_end = b.first + b.count, end = a_end < b_end ? a_end : b_end;

	return first < end ? (struct range){ first, end - first } : (struct range){ 0, 0 };
}

#define EXTENTS_MAX 340 /* the kernel's own limit */

static size_t read_map(const char *path, struct range *ranges)
{
	FILE *f = fopen(path, "re");
	unsigned long first, outside, count;
	size_t n = 0;

	if (f == NULL)
		return 0;
	while (n < EXTENTS_MAX && fscanf(f, "%lu %lu %lu", &first, &outside, &count) == 3)
		ranges[n++] = (struct range){ first, count };
	(void)fclose(f);
	return n;
}

/* The best range of ids that exist both as uid and gid: `wanted` if it is whole, else the highest there is. */
static struct range mapped_range(const struct cb_uid_places *places)
{
	static const struct range wanted = { CB_UID_FIRST, CB_UID_COUNT },
				  usable = { CB_UID_LOWEST, UINT32_MAX - 1 - CB_UID_LOWEST };
	struct range uids[EXTENTS_MAX], gids[EXTENTS_MAX], best = { 0, 0 };
	size_t nu = read_map(places->uid_map, uids), ng = read_map(places->gid_map, gids);

	for (size_t i = 0; i < nu; i++) {
		for (size_t j = 0; j < ng; j++) {
			struct range both = intersect(intersect(uids[i], gids[j]), usable);

			if (intersect(both, wanted).count == wanted.count)
				return wanted;
			if (both.count > 0 && both.first + both.count > best.first + best.count)
				best = both;
		}
	}
	if (best.count > CB_UID_COUNT) {
		best.first += best.count - CB_UID_COUNT;
		best.count = CB_UID_COUNT;
	}
	return best;
}

static bool has_account(const struct cb_uid_places *places, uid_t uid)
{
	FILE *f = fopen(places->passwd, "re");
	const struct passwd *user = NULL;
	const struct group *group = NULL;

	while (f != NULL && (user = fgetpwent(f)) != NULL && user->pw_uid != uid)
		;
	if (f != NULL)
		(void)fclose(f);
	f = user == NULL ? fopen(places->group, "re") : NULL;
	while (f != NULL && (group = fgetgrent(f)) != NULL && group->gr_gid != uid)
		;
	if (f != NULL)
		(void)fclose(f);
	return user != NULL || group != NULL;
}

/* 0 and the lock, -EWOULDBLOCK if another holds it, or held it until just now. */
static int lock_file(int folder, const char *name, int flags, int *ret_fd)
{
	CB_AUTO_FD fd = openat(folder, name, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0) /* removed between our open and our lock: the next one makes a new file */
		return -EWOULDBLOCK;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

static int lock_uid(int folder, uid_t uid, int *ret_fd)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", uid);
	return lock_file(folder, name, O_CREAT, ret_fd);
}

/* Removes the files that nobody holds. */
static void sweep(int folder)
{
	CB_AUTO_FOLDER dir = cb_folder_open(folder, ".", 0);
	const struct dirent *entry;

	while ((entry = cb_folder_next(dir)) != NULL) {
		CB_AUTO_FD lock = -1;

		if (entry->d_name[0] != '.' && lock_file(folder, entry->d_name, 0, &lock) == 0)
			(void)unlinkat(folder, entry->d_name, 0);
	}
}

static int open_folders(const struct cb_uid_places *places, int *ret_folder)
{
	CB_AUTO_FD run = -1;
	int r = cb_own_folder_open(AT_FDCWD, places->run, true, S_IWGRP | S_IWOTH, &run);

	return r < 0 ? r : cb_own_folder_open(run, "uids", true, S_IWGRP | S_IWOTH, ret_folder);
}

static int no_folder(int code, const char *run, struct cb_err *err)
{
	return cb_err_set(err, code, STEP,
			  code == -EPERM ? "Remove the folder, or give it to root with mode 0700."
					 : "Make /run a writable file system, or start Cellblock as an ordinary user.",
			  "%s/uids, where the uids of jails are locked, can't be used: %s", run,
			  code == -EPERM ? "others may write it" : strerror(-code));
}

static uint32_t random_below(uint64_t n)
{
	uint32_t value = (uint32_t)getpid();

	(void)!getrandom(&value, sizeof(value), GRND_NONBLOCK);
	return (uint32_t)(value % n);
}

int cb_uid_lease_in(const struct cb_uid_places *places, uid_t *ret_uid, int *ret_lock_fd, struct cb_err *err)
{
	CB_AUTO_FD folder = -1;
	struct range range = mapped_range(places);
	uint32_t start;
	int r;

	if (range.count == 0)
		return cb_err_set(
			err, -ENOENT, STEP, "Start Cellblock as an ordinary user, or map more ids into this container.",
			"root here has no unprivileged uid to run jails as: this user namespace maps none from %u on",
			(unsigned)CB_UID_LOWEST);
	r = open_folders(places, &folder);
	if (r < 0)
		return no_folder(r, places->run, err);
	sweep(folder);
	start = random_below(range.count);
	for (uint64_t i = 0; i < range.count; i++) {
		uid_t uid = (uid_t)(range.first + (start + i) % range.count);

		if (uid == CB_UID_NOBODY || has_account(places, uid))
			continue;
		r = lock_uid(folder, uid, ret_lock_fd);
		if (r == 0) {
			*ret_uid = uid;
			return 0;
		}
		if (r != -EWOULDBLOCK)
			return no_folder(r, places->run, err);
	}
	return cb_err_set(err, -EBUSY, STEP, "End some kernels.", "all %llu uids for jails are in use",
			  (unsigned long long)range.count);
}

/* A child of ours that lives on has our lock, and keeps the file. */
void cb_uid_release_in(const struct cb_uid_places *places, int *lock_fd)
{
	CB_AUTO_FD folder = -1;

	if (*lock_fd < 0)
		return;
	cb_fd_close(lock_fd);
	if (open_folders(places, &folder) == 0)
		sweep(folder);
}

bool cb_is_host_root(void)
{
	struct stat st;

	/* a file that is the host's root's; without /proc the stricter answer */
	return geteuid() == 0 && (stat("/proc/sys/kernel/core_pattern", &st) < 0 || st.st_uid == 0);
}

int cb_uid_lease(uid_t *ret_uid, int *ret_lock_fd, struct cb_err *err)
{
	return cb_uid_lease_in(&host, ret_uid, ret_lock_fd, err);
}

void cb_uid_release(int *lock_fd)
{
	cb_uid_release_in(&host, lock_fd);
}
