/* The description of a jail: round trip through the sealed file, the check of every member, hostile encodings. */
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../../../../sandbox/client/spec_codec.h"

static void add(struct cb_strv *v, const char *item)
{
	assert_int_equal(cb_strv_add(v, item), 0);
}

static struct cb_jail_spec sample(void)
{
	struct cb_jail_spec spec = { .workspace_mode = CB_WORKSPACE_RO,
				     .network = CB_NETWORK_FULL,
				     .cwd = strdup("/w"),
				     .hostname = strdup("cellblock"),
				     .workspace_source = strdup("/srv/w"),
				     .workspace_target = strdup("/w"),
				     .workspace_note = strdup("note \xc3\xa4"),
				     .host_home = strdup("/home/me"),
				     .limit_memory_note = strdup("what fits"),
				     .warm_folder = strdup("/run/cellblock/warm"),
				     .limit_data = UINT64_MAX,
				     .limit_pids = 1,
				     .limit_open_files = 32,
				     .limit_file_size = 0,
				     .limit_tmp = 1ull << 40,
				     .limit_shm = 4,
				     .limit_inodes = 5 };

	add(&spec.argv, "/bin/sh");
	add(&spec.argv, "");
	add(&spec.env, "A=");
	add(&spec.env, "PATH=/bin");
	add(&spec.protect, ".git/hooks");
	add(&spec.protect_paths, "/srv/w/venv");
	add(&spec.home_expose, ".ipython");
	add(&spec.home_expose, "/home/me/.config");
	add(&spec.warm_preload, "numpy");
	add(&spec.warm_preload, "_a.b_2");
	assert_int_equal(cb_spec_add_bind(&spec, "/opt/py", "/opt/py", CB_BIND_RO, false, "interpreter"), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/", "/host", CB_BIND_RW, true, NULL), 0);
	return spec;
}

static void assert_same_strv(const struct cb_strv *a, const struct cb_strv *b)
{
	assert_int_equal(a->count, b->count);
	for (size_t i = 0; i < a->count; i++)
		assert_string_equal(a->items[i], b->items[i]);
	assert_null(b->items[b->count]);
}

static void test_round_trip(void **state)
{
	struct cb_jail_spec spec = sample(), back = { 0 };
	struct cb_err err = { 0 };
	CB_AUTO_FD fd = -1;

	(void)state;
	assert_int_equal(cb_jail_spec_to_fd(&spec, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(cb_jail_spec_from_fd(fd, &back, &err), 0);
	assert_same_strv(&spec.argv, &back.argv);
	assert_same_strv(&spec.env, &back.env);
	assert_same_strv(&spec.protect, &back.protect);
	assert_same_strv(&spec.protect_paths, &back.protect_paths);
	assert_same_strv(&spec.home_expose, &back.home_expose);
	assert_same_strv(&spec.warm_preload, &back.warm_preload);
	assert_string_equal(back.warm_folder, "/run/cellblock/warm");
	assert_string_equal(back.workspace_source, "/srv/w");
	assert_string_equal(back.workspace_note, "note \xc3\xa4");
	assert_int_equal(back.workspace_mode, CB_WORKSPACE_RO);
	assert_int_equal(back.network, CB_NETWORK_FULL);
	assert_true(back.limit_data == UINT64_MAX && back.limit_tmp == 1ull << 40 && back.limit_inodes == 5);
	assert_int_equal(back.nbinds, 2);
	assert_string_equal(back.binds[0].reason, "interpreter");
	assert_true(back.binds[1].optional && back.binds[1].reason == NULL && back.binds[1].mode == CB_BIND_RW);
	cb_jail_spec_release(&spec);
	cb_jail_spec_release(&back);
	cb_jail_spec_release(NULL);
}

static void test_unsealed_file_is_refused(void **state)
{
	CB_AUTO_BUF buf = CB_BUF_INIT(CB_SPEC_MAX);
	CB_AUTO_FD fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct cb_jail_spec spec = sample(), back = { 0 };
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_jail_spec_encode(&spec, &buf), 0);
	assert_int_equal(cb_fd_write_all(fd, buf.data, buf.len), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(cb_jail_spec_from_fd(fd, &back, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "sealed"));
	assert_int_equal(cb_jail_spec_from_fd(-1, &back, &err), CB_E_DENIED);
	cb_jail_spec_release(&spec);
}

static void test_plain_paths(void **state)
{
	static const char *const good[] = { "/", "/a", "/a/b", "/..a/b..", "/.hidden", "/a b" };
	static const char *const bad[] = { "", "a", "//", "/a/", "/a//b", "/.", "/a/.", "/..", "/a/../b", "./a" };
	char longest[PATH_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(cb_path_is_plain(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(cb_path_is_plain(bad[i]));
	assert_false(cb_path_is_plain(NULL));
	for (size_t i = 0; i < PATH_MAX; i++)
		longest[i] = i % 8 == 0 ? '/' : 'a';
	longest[PATH_MAX] = '\0';
	assert_false(cb_path_is_plain(longest));
	longest[PATH_MAX - 1] = '\0';
	assert_true(cb_path_is_plain(longest));
}

/* One string member made wrong, which the error must name. */
static void refuse_text(size_t offset, const char *value, const char *name)
{
	struct cb_jail_spec spec = sample();
	char **field = (char **)((char *)&spec + offset);
	struct cb_err err = { 0 };
	int fd = -1;

	free(*field);
	*field = value != NULL ? strdup(value) : NULL;
	assert_int_equal(cb_jail_spec_check(&spec, &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.text, name));
	assert_int_equal(cb_jail_spec_to_fd(&spec, &fd), CB_E_SYNTAX);
	assert_int_equal(fd, -1);
	cb_jail_spec_release(&spec);
}

static void refuse_item(size_t offset, const char *value, const char *name)
{
	struct cb_jail_spec spec = sample();
	struct cb_err err = { 0 };

	add((struct cb_strv *)((char *)&spec + offset), value);
	assert_int_equal(cb_jail_spec_check(&spec, &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.text, name));
	cb_jail_spec_release(&spec);
}

static void refuse_zero(size_t offset, const char *name)
{
	struct cb_jail_spec spec = sample();
	struct cb_err err = { 0 };

	*(uint64_t *)((char *)&spec + offset) = 0;
	assert_int_equal(cb_jail_spec_check(&spec, &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.text, name));
	cb_jail_spec_release(&spec);
}

#define TEXT(member, value) refuse_text(offsetof(struct cb_jail_spec, member), value, #member)
#define ITEM(member, value) refuse_item(offsetof(struct cb_jail_spec, member), value, #member)
#define ZERO(member) refuse_zero(offsetof(struct cb_jail_spec, member), #member)

static void test_every_member_is_checked(void **state)
{
	(void)state;
	TEXT(cwd, NULL);
	TEXT(cwd, "w");
	TEXT(hostname, "");
	TEXT(hostname, NULL);
	TEXT(hostname, "a b");
	TEXT(workspace_source, NULL);
	TEXT(workspace_source, "/a/../b");
	TEXT(workspace_target, "/");
	TEXT(workspace_target, NULL);
	TEXT(host_home, NULL);
	ITEM(env, "A");
	ITEM(env, "=A");
	ITEM(protect, "/abs");
	ITEM(protect, "../up");
	ITEM(protect, "");
	ITEM(protect_paths, "rel");
	ITEM(home_expose, "../up");
	ITEM(home_expose, "/up/..");
	TEXT(warm_folder, "run/warm");
	TEXT(warm_folder, "/");
	refuse_text(offsetof(struct cb_jail_spec, warm_folder), NULL, "warm_preload");
	ITEM(warm_preload, "");
	ITEM(warm_preload, "1a");
	ITEM(warm_preload, "a.");
	ITEM(warm_preload, "a..b");
	ITEM(warm_preload, "a;b");
	ZERO(limit_pids);
	ZERO(limit_open_files);
	ZERO(limit_tmp);
	ZERO(limit_shm);
	ZERO(limit_inodes);
}

static void test_argv_binds_and_tmpfs_are_checked(void **state)
{
	struct cb_jail_spec spec = sample();
	char first = 0;

	(void)state;
	first = spec.argv.items[0][0];
	spec.argv.items[0][0] = 'x';
	assert_int_equal(cb_jail_spec_check(&spec, NULL), CB_E_SYNTAX);
	spec.argv.items[0][0] = first;
	assert_int_equal(cb_jail_spec_check(&spec, NULL), 0);
	spec.workspace_mode = CB_WORKSPACE_TMPFS;
	assert_int_equal(cb_jail_spec_check(&spec, NULL), CB_E_SYNTAX);
	free(spec.workspace_source);
	spec.workspace_source = NULL;
	assert_int_equal(cb_jail_spec_check(&spec, NULL), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/a", "/", CB_BIND_RO, false, NULL), 0);
	assert_int_equal(cb_jail_spec_check(&spec, NULL), CB_E_SYNTAX);
	cb_strv_release(&spec.argv);
	assert_int_equal(cb_jail_spec_check(&spec, NULL), CB_E_SYNTAX);
	cb_jail_spec_release(&spec);
}

static void test_warm_is_bounded(void **state)
{
	struct cb_jail_spec spec = sample();
	char name[CB_PRELOAD_NAME_MAX + 2];

	(void)state;
	memset(name, 'a', sizeof(name));
	name[CB_PRELOAD_NAME_MAX] = '\0';
	while (spec.warm_preload.count < CB_PRELOAD_MAX)
		add(&spec.warm_preload, name);
	assert_int_equal(cb_jail_spec_check(&spec, NULL), 0);
	add(&spec.warm_preload, "a");
	assert_int_equal(cb_jail_spec_check(&spec, NULL), CB_E_SYNTAX);
	cb_strv_release(&spec.warm_preload);
	assert_int_equal(cb_jail_spec_check(&spec, NULL), 0);
	name[CB_PRELOAD_NAME_MAX] = 'a';
	name[CB_PRELOAD_NAME_MAX + 1] = '\0';
	add(&spec.warm_preload, name);
	assert_int_equal(cb_jail_spec_check(&spec, NULL), CB_E_SYNTAX);
	cb_jail_spec_release(&spec);
}

/* Every prefix is refused, and so is a byte too many; nothing is left behind on failure. */
static void test_cut_and_extended_encodings(void **state)
{
	CB_AUTO_BUF buf = CB_BUF_INIT(CB_SPEC_MAX);
	struct cb_jail_spec spec = sample(), back = { 0 };
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_jail_spec_encode(&spec, &buf), 0);
	for (size_t n = 0; n < buf.len; n++) {
		assert_int_equal(cb_jail_spec_decode(buf.data, n, &back, &err), CB_E_SYNTAX);
		assert_null(back.argv.items);
	}
	assert_int_equal(cb_jail_spec_decode(buf.data, buf.len, &back, &err), 0);
	cb_jail_spec_release(&back);
	assert_int_equal(cb_buf_append(&buf, "", 1), 0);
	assert_int_equal(cb_jail_spec_decode(buf.data, buf.len, &back, &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.text, "end"));
	cb_jail_spec_release(&spec);
}

/* Each 32-bit word set to a value that a careless decoder would believe. */
static void test_hostile_words(void **state)
{
	static const uint32_t values[] = { UINT32_MAX, UINT32_MAX - 1, INT32_MAX, 0x10000000, CB_STRV_MAX, 0 };
	CB_AUTO_BUF buf = CB_BUF_INIT(CB_SPEC_MAX);
	struct cb_jail_spec spec = sample();

	(void)state;
	assert_int_equal(cb_jail_spec_encode(&spec, &buf), 0);
	for (size_t at = 0; at + 4 <= buf.len; at++) {
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			struct cb_jail_spec back = { 0 };
			uint8_t saved[4];

			memcpy(saved, buf.data + at, 4);
			memcpy(buf.data + at, &values[i], 4);
			if (cb_jail_spec_decode(buf.data, buf.len, &back, NULL) == 0) {
				assert_int_equal(cb_jail_spec_check(&back, NULL), 0);
				cb_jail_spec_release(&back);
			}
			memcpy(buf.data + at, saved, 4);
		}
	}
	cb_jail_spec_release(&spec);
}

static void test_too_big(void **state)
{
	struct cb_jail_spec spec = sample(), back = { 0 };
	char *item = calloc(1, CB_SPEC_STRING_MAX + 2);
	int fd = -1;

	(void)state;
	assert_non_null(item);
	memset(item, 'a', CB_SPEC_STRING_MAX);
	for (size_t i = 0; i < CB_SPEC_MAX / CB_SPEC_STRING_MAX; i++)
		add(&spec.argv, item);
	assert_int_equal(cb_jail_spec_to_fd(&spec, &fd), CB_E_TOO_BIG);
	cb_strv_release(&spec.argv);
	add(&spec.argv, "/bin/sh");
	item[CB_SPEC_STRING_MAX] = 'a';
	add(&spec.argv, item);
	assert_int_equal(cb_jail_spec_to_fd(&spec, &fd), CB_E_TOO_BIG);
	assert_int_equal(fd, -1);
	free(item);
	item = calloc(1, CB_SPEC_MAX + 1);
	assert_int_equal(cb_jail_spec_decode(item, CB_SPEC_MAX + 1, &back, NULL), CB_E_TOO_BIG);
	while (spec.nbinds < CB_BINDS_MAX)
		assert_int_equal(cb_spec_add_bind(&spec, "/a", "/a", CB_BIND_RO, false, NULL), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/a", "/a", CB_BIND_RO, false, NULL), CB_E_TOO_BIG);
	free(item);
	cb_jail_spec_release(&spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_unsealed_file_is_refused),
		cmocka_unit_test(test_plain_paths),
		cmocka_unit_test(test_every_member_is_checked),
		cmocka_unit_test(test_argv_binds_and_tmpfs_are_checked),
		cmocka_unit_test(test_warm_is_bounded),
		cmocka_unit_test(test_cut_and_extended_encodings),
		cmocka_unit_test(test_hostile_words),
		cmocka_unit_test(test_too_big),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
