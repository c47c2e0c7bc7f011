/* What a jail needs before the first launch, done once.
 *
 * Trust domain: broker, outside. Runs while the supervisor is still busy with its own start: compiling and testing the
 * filter costs milliseconds that nobody waits for. As root the jail gets an unprivileged uid of its own here: with uid
 * 0 mapped, a jail without any capability could write the host's /proc/sys/kernel/core_pattern.
 */
#include "prepare.h"

#include "../judge/judge.h"
#include "../walls/seccomp.h"

#include <cellblock/log.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int choose_uid(struct cb_jail *jail, struct cb_err *err)
{
	jail->from_root = cb_is_host_root();
	jail->host_uid = geteuid();
	if (!jail->from_root)
		return 0;
	/* Supplementary groups stay with a process in a new user namespace, and could not be dropped there. */
	if (setgroups(0, NULL) < 0)
		return cb_err_set(err, -errno, "uid",
				  "Start Cellblock as an ordinary user, or as root with CAP_SETGID.",
				  "root's supplementary groups can't be dropped: %s", strerror(errno));
	return cb_uid_lease(&jail->host_uid, &jail->uid_lock, err);
}

static void open_cgroups(struct cb_jail *jail)
{
	(void)cb_proc_text(AT_FDCWD, "/proc/self/cgroup", jail->own_group, sizeof(jail->own_group));
	cb_cgroups_open(jail->spec, &jail->cgroups);
	jail->level = cb_cgroups_level(&jail->cgroups, jail->spec);
}

/* Weaker than the policy allows: no jail at all. */
static int check_level(const struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_err *lack = &jail->cgroups.lack;

	if (jail->spec->minimum != CB_LEVEL_FULL || jail->level == CB_LEVEL_FULL)
		return 0;
	return cb_err_set(err, CB_E_DENIED, lack->step, lack->cure,
			  "isolation.minimum is \"full\", but limits can't be held by cgroups here: %s", lack->text);
}

/* The groups are looked for while the filter is tested. Nothing runs behind it before the test has passed. */
static int prepare_filter(struct cb_jail *jail, struct cb_err *err)
{
	pid_t test = 0;
	int r = cb_seccomp_compile(&jail->filter, err);

	if (r == 0)
		r = cb_seccomp_selftest_begin(&jail->filter, &test, err);
	open_cgroups(jail);
	if (r == 0)
		r = cb_seccomp_selftest_end(test, err);
	if (r < 0 && jail->spec->minimum == CB_LEVEL_NONE && strcmp(err->step, "seccomp") == 0) {
		cb_log(CB_LOG_WARNING, "isolation level none: no filter: %s", err->text);
		jail->filter.len = 0;
		jail->level = CB_LEVEL_NONE;
		snprintf(jail->refused, sizeof(jail->refused), "%.180s", err->text);
		*err = (struct cb_err){ 0 };
		r = 0;
	}
	return r;
}

int cb_jail_prepare(struct cb_jail *jail, struct cb_jail_spec *spec, int spec_fd, struct cb_err *err)
{
	int r = cb_jail_spec_from_fd(spec_fd, spec, err);

	*jail = (struct cb_jail){ .spec = spec,
				  .umask = umask(022), /* ours from here on: what we make must be ours to use */
				  .level = CB_LEVEL_NO_CGROUP,
				  .workspace_fd = -1,
				  .merged_fd = -1,
				  .watch_fd = -1,
				  .tree_fd = -1,
				  .ns_fds = { -1, -1 },
				  .rules_fd = -1,
				  .sync_fd = -1,
				  .sockets_fd = -1,
				  .host_folder_lock = -1,
				  .uid_lock = -1,
				  .guest_fds = { [0 ... CB_SPAWN_NFDS - 1] = -1 },
				  .upper_fd = { -1, -1 },
				  .root_fd = -1,
				  .cgroups = CB_CGROUPS_NONE };
	(void)close(spec_fd);
	clock_gettime(CLOCK_REALTIME_COARSE, &jail->started);
	if (r == 0)
		r = cb_judge_place(spec, err);
	if (r == 0)
		r = choose_uid(jail, err);
	if (r == 0)
		r = prepare_filter(jail, err);
	if (r == 0)
		r = check_level(jail, err);
	return r;
}
