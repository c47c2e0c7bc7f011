/* Landlock, see landlock.h; and pid 1's use of it as a second wall.
 *
 * Trust domain: pid 1, after the last mount and after capabilities: Landlock forbids further mounts, and needs
 * no_new_privs. Own definitions of the kernel's interface, since headers are older than kernels. The second wall
 * repeats what the mounts say, from the description and not from the mounts: all is readable that the jail shows, and
 * written may be only what the description says. A file outside that the jail got hold of all the same has no rule.
 * /proc is not among the writable: a second lock on /proc/sys.
 */
#include "landlock.h"

#include "../shared/jail.h"
#include "../shared/mounts.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP "landlock"
/* The same numbers on all machines. */
#define NR_CREATE_RULESET 444
#define NR_ADD_RULE 445
#define NR_RESTRICT_SELF 446
#define FLAG_VERSION 1u
#define RULE_PATH_BENEATH 1

enum {
	EXECUTE = 1 << 0,
	WRITE_FILE = 1 << 1,
	READ_FILE = 1 << 2,
	READ_DIR = 1 << 3,
	REMOVE_DIR = 1 << 4,
	REMOVE_FILE = 1 << 5,
	MAKE_CHAR = 1 << 6,
	MAKE_DIR = 1 << 7,
	MAKE_REG = 1 << 8,
	MAKE_SOCK = 1 << 9,
	MAKE_FIFO = 1 << 10,
	MAKE_BLOCK = 1 << 11,
	MAKE_SYM = 1 << 12,
	REFER = 1 << 13,     /* version 2 */
	TRUNCATE = 1 << 14,  /* version 3 */
	IOCTL_DEV = 1 << 15, /* version 5 */
};
#define FILE_BITS (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV) /* those that a file can have */
#define SCOPE_ABSTRACT_UNIX 1u
#define SCOPE_SIGNAL 2u

struct ruleset_attr {
	uint64_t files, network, scopes;
};

struct path_attr {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));

int cb_landlock_version(void)
{
	long version = syscall(NR_CREATE_RULESET, NULL, 0, FLAG_VERSION);

	return version >= 2 ? (int)version : 0;
}

struct cb_landlock_bits cb_landlock_handled(int version)
{
	struct cb_landlock_bits bits = { .files = REFER * 2 - 1 };

	if (version >= 3)
		bits.files |= TRUNCATE;
	if (version >= 5)
		bits.files |= IOCTL_DEV;
	if (version >= 6)
		bits.scopes = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	return bits;
}

uint64_t cb_landlock_allowed(int version, unsigned rights, bool folder)
{
	uint64_t bits = 0;

	if (rights & CB_LANDLOCK_READ)
		bits |= EXECUTE | READ_FILE | READ_DIR;
	if (rights & CB_LANDLOCK_WRITE)
		bits |= WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO |
			MAKE_SYM | REFER;
	if (rights & CB_LANDLOCK_DEVICES)
		bits |= WRITE_FILE | TRUNCATE | IOCTL_DEV;
	return bits & cb_landlock_handled(version).files & (folder ? UINT64_MAX : FILE_BITS);
}

static int add_place(int ruleset, int version, const struct cb_landlock_place *place)
{
	struct path_attr rule = { .fd = place->fd };
	struct stat st;

	if (fstat(place->fd, &st) < 0)
		return -errno;
	rule.allowed = cb_landlock_allowed(version, place->rights, S_ISDIR(st.st_mode));
	return syscall(NR_ADD_RULE, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

static int in_force(int r, struct cb_err *err)
{
	if (r == -E2BIG)
		return cb_err_set(err, r, STEP, "start the kernel outside of other sandboxes",
				  "16 sets of rules are in force already, and the kernel takes no more");
	return r < 0 ? cb_err_set(err, r, STEP, NULL, "the rules cannot be put in force: %s", strerror(-r)) : 0;
}

static int make_rules(int version, bool scoped, const struct cb_landlock_place *places, size_t n, int *ret_rules)
{
	struct cb_landlock_bits bits = cb_landlock_handled(version);
	struct ruleset_attr attr = { bits.files, bits.network, scoped ? bits.scopes : 0 };
	CB_AUTO_FD rules = (int)syscall(NR_CREATE_RULESET, &attr, sizeof(attr), 0);
	int r = rules < 0 ? -errno : 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_place(rules, version, &places[i]);
	if (r == 0)
		*ret_rules = cb_fd_take(&rules);
	return r;
}

int cb_landlock_enter(int rules, struct cb_err *err)
{
	return in_force(syscall(NR_RESTRICT_SELF, rules, 0) < 0 ? -errno : 0, err);
}

int cb_landlock_restrict(int version, const struct cb_landlock_place *places, size_t n, struct cb_err *err)
{
	CB_AUTO_FD rules = -1;
	int r = make_rules(version, true, places, n, &rules);

	return r < 0 ? in_force(r, err) : cb_landlock_enter(rules, err);
}

void cb_landlock_add(struct cb_landlock_wall *wall, int fd, unsigned rights)
{
	if (fd >= 0 && wall->n < CB_LANDLOCK_PLACES_MAX)
		wall->places[wall->n++] = (struct cb_landlock_place){ fd, rights };
	else
		cb_fd_close(&fd);
}

void cb_landlock_add_output(struct cb_landlock_wall *wall, int fd)
{
	struct stat st;

	/* pipes and sockets have no rules, and need none */
	if (fd >= 0 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))
		cb_landlock_add(wall, fcntl(fd, F_DUPFD_CLOEXEC, 0), CB_LANDLOCK_DEVICES);
}

int cb_landlock_enclose(struct cb_landlock_wall *wall, int version, struct cb_err *err)
{
	int r = cb_landlock_restrict(version, wall->places, wall->n, err);

	for (size_t i = 0; i < wall->n; i++)
		cb_fd_close(&wall->places[i].fd);
	return r;
}

/* ---- the second wall ---- */

static int add(struct cb_landlock_wall *wall, const char *path, unsigned rights, struct cb_err *err)
{
	int fd = -1, r = wall->n < CB_LANDLOCK_PLACES_MAX ? cb_open_nolinks(AT_FDCWD, path, O_PATH, &fd) : CB_E_TOO_BIG;

	/* Not shown, not to be entered, or a link in the workspace, where nothing was mounted: nothing to allow. What
	 * such a link leads to has a rule only under its own name. */
	if (r == -ENOENT || r == -EACCES || r == -ELOOP)
		return 0;
	if (r < 0)
		return cb_mnt_fail(err, r, STEP, path);
	cb_landlock_add(wall, fd, rights);
	return 0;
}

static int add_all(struct cb_landlock_wall *wall, const struct cb_jail *jail, struct cb_err *err)
{
	static const char *const ours[] = { "/tmp", CB_JAIL_HOME, "/dev/shm" };
	const struct cb_jail_spec *spec = jail->spec;
	int r = add(wall, "/", CB_LANDLOCK_READ, err);

	cb_landlock_add_output(wall, jail->guest_fds[CB_SPAWN_STDOUT]);
	cb_landlock_add_output(wall, jail->guest_fds[CB_SPAWN_STDERR]);
	if (r == 0)
		r = add(wall, "/dev", CB_LANDLOCK_DEVICES, err);
	for (size_t i = 0; i < CB_COUNT(ours) && r == 0; i++)
		r = add(wall, ours[i], CB_LANDLOCK_WRITE, err);
	if (r == 0 && spec->workspace_target != NULL && spec->workspace_mode != CB_WORKSPACE_RO && !jail->workspace_ro)
		r = add(wall, spec->workspace_target, CB_LANDLOCK_WRITE, err);
	for (size_t i = 0; i < spec->nbinds && r == 0; i++) {
		if (spec->binds[i].mode != CB_BIND_RO)
			r = add(wall, spec->binds[i].target, CB_LANDLOCK_WRITE, err);
		/* what a zygote has open lies on its own mounts, below no root of this jail: /proc/self/exe */
		if (r == 0 && jail->warm)
			r = add(wall, spec->binds[i].target, CB_LANDLOCK_READ, err);
	}
	return r == 0 && jail->warm ? add(wall, "/usr", CB_LANDLOCK_READ, err) : r;
}

/* A guest that comes from a zygote puts itself under the same rules. It would be in another domain than pid 1, which
 * could neither see nor signal it if it were in one. Helpers put themselves in a third: so signals and abstract
 * sockets, by which cells and commands reach each other, are held in the jail by its namespaces alone. */
static int keep_rules(struct cb_jail *jail, const struct cb_landlock_wall *wall, int version, struct cb_err *err)
{
	return in_force(make_rules(version, false, wall->places, wall->n, &jail->rules_fd), err);
}

int cb_step_landlock(struct cb_jail *jail, struct cb_err *err)
{
	struct cb_landlock_wall wall = { .n = 0 };
	int version = cb_landlock_version(), r;

	if (version == 0)
		return 0; /* explain and doctor say so */
	r = add_all(&wall, jail, err);
	if (r == 0 && !jail->warm)
		return cb_landlock_enclose(&wall, version, err);
	if (r == 0)
		r = keep_rules(jail, &wall, version, err);
	for (size_t i = 0; i < wall.n; i++)
		cb_fd_close(&wall.places[i].fd);
	return r;
}
