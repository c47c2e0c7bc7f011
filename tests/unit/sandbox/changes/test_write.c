/* Entries that are put into the workspace, or removed from it: what others make beside them, and save, stays. */
#include "../../../../sandbox/changes/overlay_changes.h"
#include "../../../../sandbox/changes/written.h"
#include "../../../../sandbox/shared/mounts.h"
#include "../../broken_folder.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define OTHERS 4

static char root[] = "/tmp/cb-write-XXXXXX";
static char *pattern_items[] = { ".git", NULL };
static const struct cb_strv patterns = { pattern_items, 1 };
static const struct cb_strv none = { 0 };

/* What others do in the moment before something is made or removed. */
static void (*meanwhile)(int folder, const char *name);
static int renames;

static void let_others(int folder, const char *name)
{
	void (*act)(int, const char *) = meanwhile;

	meanwhile = NULL;
	if (act != NULL)
		act(folder, name);
}

/* In the place of the C library's. */
int renameat(int from, const char *old, int to, const char *new)
{
	renames++;
	let_others(to, new);
	return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int mkdirat(int folder, const char *name, mode_t mode)
{
	let_others(folder, name);
	return (int)syscall(SYS_mkdirat, folder, name, mode);
}

int unlinkat(int folder, const char *name, int flags)
{
	let_others(folder, name);
	return (int)syscall(SYS_unlinkat, folder, name, flags);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL || chdir(root) < 0 || mknod("f", S_IFREG | 0644, 0) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(root);
}

static int write_file(struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file)
{
	struct cb_layer_made made;
	int r = cb_layer_make_file(layer, e, &made);

	(void)file;
	return r < 0 ? r : cb_layer_put(layer, e, &made);
}

static int write_name(struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file)
{
	struct cb_layer_made made;
	int r = cb_layer_make_name(layer, e, file, &made);

	return r < 0 ? r : cb_layer_put(layer, e, &made);
}

static int write_link(struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file)
{
	struct cb_layer_made made;
	int r = cb_layer_make_link(layer, e, &made);

	(void)file;
	return r < 0 ? r : cb_layer_put(layer, e, &made);
}

static int sparse(const char *name, off_t at)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1LL << 40), 0);
	if (at >= 0)
		assert_int_equal(pwrite(fd, "x", 1, at), 1);
	return fd;
}

/* Files of a million megabytes are compared in no time, wherever what they hold lies. */
static void test_same_data_in_holes(void **state)
{
	CB_AUTO_FD hole = sparse("hole", -1);
	CB_AUTO_FD early = sparse("early", 1LL << 20);
	CB_AUTO_FD late = sparse("late", 1LL << 39);
	CB_AUTO_FD last = sparse("last", (1LL << 40) - 1);
	CB_AUTO_FD again = sparse("again", 1LL << 39);
	CB_AUTO_FD zero = sparse("zero", 1LL << 39);
	const int all[] = { hole, early, late, last };

	(void)state;
	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < 4; j++)
			assert_int_equal(cb_layer_same_data(all[i], all[j], true), i == j);
	assert_true(cb_layer_same_data(late, again, true));
	assert_int_equal(pwrite(zero, "", 1, 1LL << 39), 1);
	assert_true(cb_layer_same_data(hole, zero, true));
	assert_true(cb_layer_same_data(zero, hole, true));
	assert_int_equal(pwrite(again, "y", 1, (1LL << 39) + (1 << 20)), 1);
	assert_false(cb_layer_same_data(late, again, true));
	assert_false(cb_layer_same_data(again, late, true));
	assert_int_equal(ftruncate(last, (1LL << 40) - 1), 0);
	assert_false(cb_layer_same_data(hole, last, true));
	assert_int_equal(ftruncate(hole, (1LL << 40) - 1), 0);
	assert_true(cb_layer_same_data(hole, last, true));
}

/* In another container a process of this number writes into the same folder. */
static void test_temporary_files_of_others(void **state)
{
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct cb_jail jail = { .from_root = false };
	struct cb_layer layer = { .jail = &jail, .root = folder };
	const struct cb_layer_entry e = { .path = "g", .name = "g", .upper = -1, .lower = folder };
	struct cb_links links = { 0 };
	struct stat f, g;
	char name[64];

	(void)state;
	for (int i = 0; i < OTHERS; i++) {
		snprintf(name, sizeof(name), ".cellblock-commit-%d-%d", (int)getpid(), i);
		assert_int_equal(mknod(name, S_IFREG | 0644, 0), 0);
	}
	assert_int_equal(lstat("f", &f), 0);
	cb_links_add(&links, &f, "f", &f);
	assert_int_equal(write_name(&layer, &e, cb_links_find(&links, &f)), 0);
	assert_int_equal(lstat("g", &g), 0);
	assert_int_equal(g.st_ino, f.st_ino);
	for (int i = 0; i < OTHERS; i++) {
		snprintf(name, sizeof(name), ".cellblock-commit-%d-%d", (int)getpid(), i);
		assert_int_equal(access(name, F_OK), 0);
	}
	cb_links_release(&links);
}

/* Its names are not taken for all: what is not among them would be removed elsewhere. */
static void test_list_that_breaks_off(void **state)
{
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_STRV whole = { 0 };
	int r;

	(void)state;
	assert_int_equal(cb_layer_list(folder, &whole), 0);
	assert_true(whole.count > 1);
	for (size_t i = 0; i < whole.count; i++) {
		CB_AUTO_STRV names = { 0 };

		entries_left = (int)i;
		r = cb_layer_list(folder, &names);
		entries_left = -1;
		assert_int_equal(r, -EIO);
	}
}

static void write_text(const char *name, const char *text)
{
	CB_AUTO_FD fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static unsigned names_in(const char *path)
{
	CB_AUTO_FD folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_STRV names = { 0 };

	assert_int_equal(cb_layer_list(folder, &names), 0);
	return (unsigned)names.count;
}

static void make_refs(int folder, const char *name)
{
	(void)folder;
	(void)name;
	assert_int_equal(mkdir("r/refs", 0755), 0);
}

static void make_objects(int folder, const char *name)
{
	(void)folder;
	(void)name;
	assert_int_equal(mkdir("o/objects", 0755), 0);
}

/* Two jails in one folder: the other one sees the temporary file, and makes what the judge has missed. */
static void test_no_repository_is_completed(void **state)
{
	int (*const writes[])(struct cb_layer *, const struct cb_layer_entry *,
			      const struct cb_link *) = { write_file, write_name, write_link };
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct cb_jail jail = { .from_root = false };
	struct cb_layer layer = { .jail = &jail, .root = folder, .commit = true, .room = 1 << 20, .target = "x" };
	struct cb_layer_entry e = { .path = "r/HEAD", .name = "HEAD", .maker = true };
	struct cb_links links = { 0 };
	struct stat f;

	(void)state;
	layer.judge = (struct cb_judge){ .root = folder, .beside = -1, .patterns = &patterns, .paths = &none };
	assert_true(mkdir("u", 0755) == 0 && mkdir("r", 0755) == 0 && mkdir("r/objects", 0755) == 0);
	write_text("u/HEAD", "ref: refs/heads/x\n");
	CB_AUTO_FD upper = open("u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_FD lower = open("r", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	e.upper = upper;
	e.lower = lower;
	assert_int_equal(lstat("u/HEAD", &e.st), 0);
	assert_int_equal(lstat("f", &f), 0);
	cb_links_add(&links, &f, "f", &f);
	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		assert_int_equal(writes[i](&layer, &e, cb_links_find(&links, &f)), 0);
		assert_int_equal(unlink("r/HEAD"), 0);
		meanwhile = make_refs;
		assert_int_equal(writes[i](&layer, &e, cb_links_find(&links, &f)), -EROFS);
		assert_int_equal(names_in("r"), 2);
		renames = 0; /* what was there before the last moment is seen then: there was no such folder ever */
		assert_int_equal(writes[i](&layer, &e, cb_links_find(&links, &f)), -EROFS);
		assert_int_equal(renames, 0);
		assert_int_equal(names_in("r"), 2);
		assert_int_equal(rmdir("r/refs"), 0);
	}
	cb_links_release(&links);
}

static void test_no_repository_is_completed_by_a_folder(void **state)
{
	const struct cb_jail jail = { .from_root = false };
	const struct cb_layer layer = { .jail = &jail };
	struct cb_layer_entry e = { .path = "o/refs", .name = "refs", .maker = true, .st = { .st_mode = 0755 } };

	(void)state;
	assert_int_equal(mkdir("o", 0755), 0);
	write_text("o/HEAD", "");
	CB_AUTO_FD lower = open("o", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	e.lower = lower;
	assert_int_equal(cb_layer_write_folder(&layer, &e), 0);
	assert_int_equal(rmdir("o/refs"), 0);
	meanwhile = make_objects;
	assert_int_equal(cb_layer_write_folder(&layer, &e), -EROFS);
	assert_int_equal(names_in("o"), 2);
}

/* ---- removal ---- */

static struct timespec changed(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_ctim;
}

static struct timespec since; /* the younger one's time: the clock of files may have moved on between the two */

/* What is not about to go is saved, after the clock of files has moved on. */
static void save_the_other(int folder, const char *name)
{
	char other[8];

	(void)folder;
	snprintf(other, sizeof(other), "n/%s", strcmp(name, "a") == 0 ? "b" : "a");
	while (!cb_is_after(changed(other), since))
		write_text(other, "newer");
}

static void test_what_is_saved_while_a_folder_is_removed_stays(void **state)
{
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct cb_jail jail = { .from_root = false };
	struct cb_layer layer = { .jail = &jail, .root = folder, .commit = true, .entries = CB_BUF_INIT(4096) };
	struct stat st;

	(void)state;
	layer.judge = (struct cb_judge){ .root = folder, .beside = -1, .patterns = &patterns, .paths = &none };
	assert_int_equal(fstat(folder, &st), 0);
	layer.dev = st.st_dev;
	assert_int_equal(mkdir("n", 0755), 0);
	write_text("n/a", "older");
	write_text("n/b", "older");
	since = layer.since = cb_is_after(changed("n/a"), changed("n/b")) ? changed("n/a") : changed("n/b");
	meanwhile = save_the_other;
	assert_int_equal(cb_layer_remove(&layer, folder, "n", "n", 0), -ENOTEMPTY);
	assert_int_equal(layer.count[CB_CHANGE_SKIPPED], 1);
	assert_int_equal(names_in("n"), 1);
	assert_true(stat("n/a", &st) == 0 || stat("n/b", &st) == 0);
	assert_int_equal(st.st_size, strlen("newer"));
	layer.since = (struct timespec){ 0 }; /* unknown */
	assert_int_equal(cb_layer_remove(&layer, folder, "n", "n", 0), 0);
	assert_int_equal(layer.count[CB_CHANGE_SKIPPED], 1);
	cb_buf_release(&layer.entries);
}

/* Whatever time of modification it has: what a commit has written is known as it was then. */
static void test_what_others_make_while_a_commit_writes_stays(void **state)
{
	const struct timespec old[2] = { { .tv_sec = 2 }, { .tv_sec = 2 } };
	struct stat st;
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static struct cb_jail jail;
	struct cb_layer layer = {
		.jail = &jail, .root = folder, .commit = true, .since = { 1, 0 }, .entries = CB_BUF_INIT(4096)
	};

	(void)state;
	layer.judge = (struct cb_judge){ .root = folder, .beside = -1, .patterns = &patterns, .paths = &none };
	jail.written = cb_written_new();
	assert_non_null(jail.written);
	assert_int_equal(symlink("f", "link"), 0);
	write_text("file", "");
	assert_int_equal(utimensat(AT_FDCWD, "file", old, 0), 0);
	assert_int_equal(cb_layer_remove(&layer, folder, "link", "link", 0), -ENOTEMPTY);
	assert_int_equal(cb_layer_remove(&layer, folder, "file", "file", 0), -ENOTEMPTY);
	assert_int_equal(layer.count[CB_CHANGE_SKIPPED], 2);
	assert_int_equal(lstat("link", &st), 0); /* by a commit before */
	cb_written_note(jail.written, &st);
	assert_int_equal(lstat("file", &st), 0);
	cb_written_note(jail.written, &st);
	assert_int_equal(cb_layer_remove(&layer, folder, "link", "link", 0), 0);
	assert_int_equal(cb_layer_remove(&layer, folder, "file", "file", 0), 0);
	cb_buf_release(&layer.entries);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_data_in_holes),
					    cmocka_unit_test(test_temporary_files_of_others),
					    cmocka_unit_test(test_no_repository_is_completed),
					    cmocka_unit_test(test_no_repository_is_completed_by_a_folder),
					    cmocka_unit_test(test_what_is_saved_while_a_folder_is_removed_stays),
					    cmocka_unit_test(test_what_others_make_while_a_commit_writes_stays),
					    cmocka_unit_test(test_list_that_breaks_off) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
