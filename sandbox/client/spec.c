/* The description of a jail and its encoded form on a sealed memfd.
 *
 * Role: the supervisor encodes, the broker decodes; one table drives both, and the release. Trust domain: both sides.
 * The decoder runs with the broker's rights and takes nothing on trust: every length and count is checked against what
 * is left of the input before memory is asked for, and a decoded description must pass the same check as one that is to
 * be encoded.
 *
 * Form: "CBSPEC02", then the members in the table's order, little-endian: string = u32 length (~0 = absent) and bytes
 * without a NUL; vector = u32 count and strings; number = u64; enumeration and bool = u32. At last u32 count of binds,
 * and the binds. There is one version only: supervisor and broker come from one build.
 */
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "spec_codec.h"

static const char magic[8] = { 'C', 'B', 'S', 'P', 'E', 'C', '0', '2' };

enum kind { STRING, VECTOR, NUMBER, ENUM, BOOL };

struct member {
	const char *name;
	size_t offset;
	enum kind kind;
	unsigned max; /* ENUM: the last value */
};

#define M(type, name, kind, max)                                                                                       \
	{                                                                                                              \
#name, offsetof(struct type, name), kind, max                                                          \
	}
#define S(name, kind) M(cb_jail_spec, name, kind, 0)

static const struct member spec_members[] = {
	S(argv, VECTOR),
	S(env, VECTOR),
	S(cwd, STRING),
	S(hostname, STRING),
	S(root_path, STRING),
	S(workspace_source, STRING),
	S(workspace_target, STRING),
	S(workspace_note, STRING),
	M(cb_jail_spec, workspace_mode, ENUM, CB_WORKSPACE_OVERLAY),
	M(cb_jail_spec, network, ENUM, CB_NETWORK_FULL),
	M(cb_jail_spec, notifier, BOOL, 0),
	M(cb_jail_spec, minimum, ENUM, CB_LEVEL_FULL),
	S(protect, VECTOR),
	S(protect_paths, VECTOR),
	S(home_expose, VECTOR),
	S(host_home, STRING),
	S(limit_memory, NUMBER),
	S(limit_cpu, NUMBER),
	S(limit_data, NUMBER),
	S(limit_pids, NUMBER),
	S(limit_open_files, NUMBER),
	S(limit_file_size, NUMBER),
	S(limit_tmp, NUMBER),
	S(limit_shm, NUMBER),
	S(limit_inodes, NUMBER),
	S(limit_workspace, NUMBER),
	S(limit_memory_note, STRING),
	S(warm_folder, STRING),
	S(warm_preload, VECTOR),
	{ 0 },
};

static const struct member bind_members[] = {
	M(cb_bind, source, STRING, 0), M(cb_bind, target, STRING, 0), M(cb_bind, mode, ENUM, CB_BIND_SESSION),
	M(cb_bind, optional, BOOL, 0), M(cb_bind, reason, STRING, 0), { 0 },
};

_Static_assert(sizeof(enum cb_bind_mode) == sizeof(unsigned), "ENUM members are read as unsigned");

static void release_members(const struct member *m, void *object)
{
	for (; m->name != NULL; m++) {
		void *field = (char *)object + m->offset;

		if (m->kind == STRING) {
			free(*(char **)field);
			*(char **)field = NULL;
		} else if (m->kind == VECTOR) {
			cb_strv_release(field);
		}
	}
}

void cb_jail_spec_release(struct cb_jail_spec *spec)
{
	if (spec == NULL)
		return;
	for (size_t i = 0; i < spec->nbinds; i++)
		release_members(bind_members, &spec->binds[i]);
	free(spec->binds);
	release_members(spec_members, spec);
	*spec = (struct cb_jail_spec){ 0 };
}

int cb_spec_add_bind(struct cb_jail_spec *spec, const char *source, const char *target, enum cb_bind_mode mode,
		     bool optional, const char *reason)
{
	struct cb_bind bind = { .mode = mode, .optional = optional }, *binds;

	if (spec->nbinds >= CB_BINDS_MAX)
		return CB_E_TOO_BIG;
	bind.source = strdup(source);
	bind.target = strdup(target);
	bind.reason = reason != NULL ? strdup(reason) : NULL;
	binds = realloc(spec->binds, (spec->nbinds + 1) * sizeof(*binds));
	if (binds != NULL)
		spec->binds = binds;
	if (binds == NULL || bind.source == NULL || bind.target == NULL || (reason != NULL && bind.reason == NULL)) {
		release_members(bind_members, &bind);
		return -ENOMEM;
	}
	spec->binds[spec->nbinds++] = bind;
	return 0;
}

/* ---- what a description must be ---- */

bool cb_path_is_plain(const char *path)
{
	const char *part = path;

	if (path == NULL || path[0] != '/' || strlen(path) >= PATH_MAX)
		return false;
	if (path[1] == '\0')
		return true;
	while (*part == '/') {
		size_t len = strcspn(++part, "/");

		if (len == 0 || len > NAME_MAX || (len == 1 && part[0] == '.') ||
		    (len == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		part += len;
	}
	return true;
}

static int wrong(struct cb_err *err, const char *member, const char *value, const char *must)
{
	return cb_err_set(err, CB_E_SYNTAX, "jail description", NULL, "%s is %s%.200s%s, but must be %s", member,
			  value != NULL ? "\"" : "", value != NULL ? value : "absent", value != NULL ? "\"" : "", must);
}

static int check_path(struct cb_err *err, const char *member, const char *path, bool root_allowed)
{
	if (!cb_path_is_plain(path) || (!root_allowed && path[1] == '\0'))
		return wrong(err, member, path, "an absolute path without empty, \".\" or \"..\" parts");
	return 0;
}

static int check_vector_paths(struct cb_err *err, const char *member, const struct cb_strv *v)
{
	int r = 0;

	for (size_t i = 0; i < v->count && r == 0; i++)
		r = check_path(err, member, v->items[i], true);
	return r;
}

/* A pattern below the workspace: as a path, but without the leading slash. */
static bool pattern_is_plain(const char *pattern)
{
	char path[PATH_MAX + 1];
	int n = snprintf(path, sizeof(path), "/%s", pattern);

	return n > 1 && (size_t)n < sizeof(path) && cb_path_is_plain(path);
}

static int check_vectors(const struct cb_jail_spec *spec, struct cb_err *err)
{
	int r;

	if (spec->argv.count == 0)
		return wrong(err, "argv", NULL, "a command");
	r = check_path(err, "argv[0]", spec->argv.items[0], false);
	if (r < 0)
		return r;
	for (size_t i = 0; i < spec->env.count; i++) {
		const char *entry = spec->env.items[i];

		if (strchr(entry, '=') == NULL || entry[0] == '=')
			return wrong(err, "env", entry, "NAME=VALUE");
	}
	for (size_t i = 0; i < spec->protect.count; i++)
		if (!pattern_is_plain(spec->protect.items[i]))
			return wrong(err, "protect", spec->protect.items[i],
				     "a relative path without empty, \".\" or \"..\" parts");
	r = check_vector_paths(err, "protect_paths", &spec->protect_paths);
	for (size_t i = 0; i < spec->home_expose.count && r == 0; i++) {
		const char *item = spec->home_expose.items[i];

		if (!cb_path_is_plain(item) && !pattern_is_plain(item))
			r = wrong(err, "home_expose", item,
				  "a path without empty, \".\" or \"..\" parts, absolute or below the home");
	}
	return r == 0 && spec->home_expose.count > 0 ? check_path(err, "host_home", spec->host_home, true) : r;
}

static int check_numbers(const struct cb_jail_spec *spec, struct cb_err *err)
{
	static const struct member must[] = {
		S(limit_pids, NUMBER), S(limit_tmp, NUMBER), S(limit_shm, NUMBER), S(limit_inodes, NUMBER), { 0 }
	};

	for (const struct member *m = must; m->name != NULL; m++)
		if (*(const uint64_t *)((const char *)spec + m->offset) == 0)
			return wrong(err, m->name, "0", "at least 1");
	if (spec->limit_open_files < CB_OPEN_FILES_MIN)
		return wrong(err, "limit_open_files", "too small", "at least 32");
	return 0;
}

static int check_session(const struct cb_jail_spec *spec, struct cb_err *err)
{
	const char *source = NULL;

	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *bind = &spec->binds[i];

		if (bind->mode != CB_BIND_SESSION)
			continue;
		if (source != NULL && strcmp(source, bind->source) != 0)
			return wrong(err, "bind source", bind->source, "that of the other session bind");
		source = bind->source;
	}
	return 0;
}

/* A module's dotted name, as the policy takes it. */
static bool module_is_plain(const char *name)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

	if (strlen(name) > CB_PRELOAD_NAME_MAX)
		return false;
	for (const char *part = name;; part++) {
		size_t n = strspn(part, letters);

		if (n == 0 || (part[0] >= '0' && part[0] <= '9'))
			return false;
		part += n;
		if (*part != '.')
			return *part == '\0';
	}
}

static int check_warm(const struct cb_jail_spec *spec, struct cb_err *err)
{
	if (spec->warm_preload.count > (spec->warm_folder != NULL ? CB_PRELOAD_MAX : 0))
		return wrong(err, "warm_preload", spec->warm_preload.items[0],
			     "at most 64 modules, and none without warm_folder");
	for (size_t i = 0; i < spec->warm_preload.count; i++)
		if (!module_is_plain(spec->warm_preload.items[i]))
			return wrong(err, "warm_preload", spec->warm_preload.items[i], "a module's dotted name");
	return spec->warm_folder != NULL ? check_path(err, "warm_folder", spec->warm_folder, false) : 0;
}

int cb_jail_spec_check(const struct cb_jail_spec *spec, struct cb_err *err)
{
	static const char host_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
	int r = check_vectors(spec, err);

	if (r == 0)
		r = check_path(err, "cwd", spec->cwd, true);
	if (r == 0 && spec->root_path != NULL)
		r = check_path(err, "root_path", spec->root_path, false);
	if (r == 0 && (spec->workspace_target != NULL || spec->workspace_mode != CB_WORKSPACE_TMPFS))
		r = check_path(err, "workspace_target", spec->workspace_target, false);
	if (r == 0 && spec->workspace_mode != CB_WORKSPACE_TMPFS)
		r = check_path(err, "workspace_source", spec->workspace_source, true);
	else if (r == 0 && spec->workspace_source != NULL)
		r = wrong(err, "workspace_source", spec->workspace_source, "absent when workspace_mode is tmpfs");
	if (r == 0 && (spec->hostname == NULL || spec->hostname[0] == '\0' || strlen(spec->hostname) > HOST_NAME_MAX ||
		       spec->hostname[strspn(spec->hostname, host_chars)] != '\0'))
		r = wrong(err, "hostname", spec->hostname, "1 to 64 letters, digits, dots and dashes");
	for (size_t i = 0; i < spec->nbinds && r == 0; i++) {
		r = check_path(err, "bind source", spec->binds[i].source, true);
		if (r == 0)
			r = check_path(err, "bind target", spec->binds[i].target, false);
	}
	if (r == 0)
		r = check_session(spec, err);
	if (r == 0)
		r = check_warm(spec, err);
	return r == 0 ? check_numbers(spec, err) : r;
}

/* ---- encoding ---- */

static int put_u32(struct cb_buf *out, uint32_t value)
{
	value = htole32(value);
	return cb_buf_append(out, &value, sizeof(value));
}

static int put_string(struct cb_buf *out, const char *s)
{
	size_t len = s != NULL ? strlen(s) : 0;
	int r;

	if (s == NULL)
		return put_u32(out, UINT32_MAX);
	if (len > CB_SPEC_STRING_MAX)
		return CB_E_TOO_BIG;
	r = put_u32(out, (uint32_t)len);
	return r == 0 ? cb_buf_append(out, s, len) : r;
}

static int put_vector(struct cb_buf *out, const struct cb_strv *v)
{
	int r = v->count <= CB_STRV_MAX ? put_u32(out, (uint32_t)v->count) : CB_E_TOO_BIG;

	for (size_t i = 0; i < v->count && r == 0; i++)
		r = put_string(out, v->items[i]);
	return r;
}

static int put_members(struct cb_buf *out, const struct member *m, const void *object)
{
	int r = 0;

	for (; m->name != NULL && r == 0; m++) {
		const void *field = (const char *)object + m->offset;
		uint64_t number;

		switch (m->kind) {
		case STRING:
			r = put_string(out, *(char *const *)field);
			break;
		case VECTOR:
			r = put_vector(out, field);
			break;
		case NUMBER:
			number = htole64(*(const uint64_t *)field);
			r = cb_buf_append(out, &number, sizeof(number));
			break;
		case ENUM:
			r = put_u32(out, *(const unsigned *)field);
			break;
		case BOOL:
			r = put_u32(out, *(const bool *)field);
			break;
		}
	}
	return r;
}

int cb_jail_spec_encode(const struct cb_jail_spec *spec, struct cb_buf *out)
{
	int r = cb_jail_spec_check(spec, NULL);

	if (r == 0)
		r = cb_buf_append(out, magic, sizeof(magic));
	if (r == 0)
		r = put_members(out, spec_members, spec);
	if (r == 0)
		r = spec->nbinds <= CB_BINDS_MAX ? put_u32(out, (uint32_t)spec->nbinds) : CB_E_TOO_BIG;
	for (size_t i = 0; i < spec->nbinds && r == 0; i++)
		r = put_members(out, bind_members, &spec->binds[i]);
	return r;
}

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int cb_jail_spec_to_fd(const struct cb_jail_spec *spec, int *ret_fd)
{
	CB_AUTO_BUF buf = CB_BUF_INIT(CB_SPEC_MAX);
	CB_AUTO_FD fd = -1;
	int r = cb_jail_spec_encode(spec, &buf);

	if (r < 0)
		return r;
	fd = memfd_create("cellblock-jail-description", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	r = cb_fd_write_all(fd, buf.data, buf.len);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* ---- decoding ---- */

struct reader {
	const uint8_t *at;
	size_t left;
};

static int get(struct reader *in, void *ret_value, size_t n)
{
	if (in->left < n)
		return CB_E_SYNTAX;
	memcpy(ret_value, in->at, n);
	in->at += n;
	in->left -= n;
	return 0;
}

static int get_u32(struct reader *in, uint32_t max, uint32_t *ret_value)
{
	uint32_t value = 0;
	int r = get(in, &value, sizeof(value));

	value = le32toh(value);
	if (r < 0 || value > max)
		return CB_E_SYNTAX;
	*ret_value = value;
	return 0;
}

static int get_string(struct reader *in, bool may_be_absent, char **ret_string)
{
	uint32_t len = 0;
	int r = get_u32(in, UINT32_MAX, &len);
	char *s;

	if (r < 0 || (len == UINT32_MAX && may_be_absent))
		return r;
	if (len > CB_SPEC_STRING_MAX || len > in->left || memchr(in->at, '\0', len) != NULL)
		return CB_E_SYNTAX;
	s = malloc((size_t)len + 1);
	if (s == NULL)
		return -ENOMEM;
	memcpy(s, in->at, len);
	s[len] = '\0';
	in->at += len;
	in->left -= len;
	*ret_string = s;
	return 0;
}

static int get_vector(struct reader *in, struct cb_strv *v)
{
	uint32_t count = 0;
	int r = get_u32(in, CB_STRV_MAX, &count);

	if (r < 0 || count > in->left / sizeof(uint32_t))
		return CB_E_SYNTAX;
	if (count == 0)
		return 0;
	v->items = calloc((size_t)count + 1, sizeof(*v->items));
	if (v->items == NULL)
		return -ENOMEM;
	while (v->count < count && r == 0) {
		r = get_string(in, false, &v->items[v->count]);
		if (r == 0)
			v->count++;
	}
	return r;
}

static int get_members(struct reader *in, const struct member *m, void *object, const char **ret_bad)
{
	int r = 0;

	for (; m->name != NULL && r == 0; m++) {
		void *field = (char *)object + m->offset;
		uint64_t number = 0;
		uint32_t value = 0;

		*ret_bad = m->name;
		switch (m->kind) {
		case STRING:
			r = get_string(in, true, field);
			break;
		case VECTOR:
			r = get_vector(in, field);
			break;
		case NUMBER:
			r = get(in, &number, sizeof(number));
			*(uint64_t *)field = le64toh(number);
			break;
		case ENUM:
			r = get_u32(in, m->max, &value);
			*(unsigned *)field = value;
			break;
		case BOOL:
			r = get_u32(in, 1, &value);
			*(bool *)field = value != 0;
			break;
		}
	}
	return r;
}

static int get_binds(struct reader *in, struct cb_jail_spec *spec, const char **ret_bad)
{
	uint32_t count = 0;
	int r = get_u32(in, CB_BINDS_MAX, &count);

	*ret_bad = "binds";
	if (r < 0 || count > in->left / (sizeof(uint32_t) * 5))
		return CB_E_SYNTAX;
	if (count == 0)
		return 0;
	spec->binds = calloc(count, sizeof(*spec->binds));
	if (spec->binds == NULL)
		return -ENOMEM;
	spec->nbinds = count; /* all zero so far: release copes with the rest of them */
	for (size_t i = 0; i < count && r == 0; i++)
		r = get_members(in, bind_members, &spec->binds[i], ret_bad);
	return r;
}

int cb_jail_spec_decode(const void *data, size_t n, struct cb_jail_spec *ret_spec, struct cb_err *err)
{
	struct reader in = { .at = data, .left = n };
	struct cb_jail_spec spec = { 0 };
	char head[sizeof(magic)] = { 0 };
	const char *bad = "head";
	int r;

	if (n > CB_SPEC_MAX)
		return cb_err_set(err, CB_E_TOO_BIG, "jail description", NULL, "it has %zu bytes, more than %u", n,
				  CB_SPEC_MAX);
	r = get(&in, head, sizeof(head));
	if (r == 0 && memcmp(head, magic, sizeof(magic)) != 0)
		r = CB_E_SYNTAX;
	if (r == 0)
		r = get_members(&in, spec_members, &spec, &bad);
	if (r == 0)
		r = get_binds(&in, &spec, &bad);
	if (r == 0 && in.left != 0) {
		bad = "end";
		r = CB_E_SYNTAX;
	}
	if (r < 0)
		cb_err_set(err, r, "jail description", "Use the programs of one installation together.",
			   r == -ENOMEM ? "out of memory at %s" : "its encoded form is wrong at %s", bad);
	else
		r = cb_jail_spec_check(&spec, err);
	if (r < 0) {
		cb_jail_spec_release(&spec);
		return r;
	}
	*ret_spec = spec;
	return 0;
}

int cb_jail_spec_from_fd(int fd, struct cb_jail_spec *ret_spec, struct cb_err *err)
{
	int seals = fcntl(fd, F_GET_SEALS), r;
	char *data = NULL;
	size_t len = 0;

	if (seals < 0 || (seals & SEALS) != SEALS)
		return cb_err_set(err, CB_E_DENIED, "jail description", "Let cellblock start this program.",
				  "fd %d is not a sealed memory file", fd);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return cb_err_set(err, -errno, "jail description", NULL, "fd %d can't be read: %s", fd,
				  strerror(errno));
	r = cb_fd_read_all(fd, CB_SPEC_MAX, &data, &len);
	if (r < 0)
		return cb_err_set(err, r, "jail description", NULL, "fd %d can't be read: %s", fd, cb_err_name(r));
	r = cb_jail_spec_decode(data, len, ret_spec, err);
	free(data);
	return r;
}
