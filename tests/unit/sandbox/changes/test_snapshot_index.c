/* The index of snapshots: names, inodes, contents and states over time, the last against a model. */
#include "../../../../sandbox/changes/snapshot_index.h"
#include "../../folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
	char path[64];
	int store;
	struct cb_kept ix;
} it;

static int setup(void **state)
{
	(void)state;
	snprintf(it.path, sizeof(it.path), "/tmp/cb-kept-XXXXXX");
	if (mkdtemp(it.path) == NULL)
		return -1;
	it.store = open(it.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return cb_kept_open(it.store, true, &it.ix);
}

static int teardown(void **state)
{
	(void)state;
	cb_kept_close(&it.ix);
	close(it.store);
	return folder_remove(it.path);
}

static struct cb_node *root(void)
{
	return cb_kept_node(&it.ix, it.ix.head->root);
}

static unsigned files_kept(void)
{
	DIR *dir = opendir(it.path);
	unsigned n = 0;

	assert_non_null(dir);
	for (const struct dirent *e; (e = readdir(dir)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n - 1; /* the index itself */
}

static cb_slot content(void)
{
	cb_slot slot = cb_kept_content(&it.ix);
	char name[CB_CONTENT_NAME];
	int fd = openat(it.store, cb_kept_content_name(slot, name), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(slot != 0 && fd >= 0);
	close(fd);
	return slot;
}

static void test_names(void **state)
{
	struct cb_node *d = cb_kept_add(&it.ix, root(), "d"), *x = cb_kept_add(&it.ix, d, "x");
	char longest[257];

	(void)state;
	assert_ptr_equal(cb_kept_find(&it.ix, root(), "d"), d);
	assert_ptr_equal(cb_kept_find(&it.ix, d, "x"), x);
	assert_null(cb_kept_find(&it.ix, root(), "x"));
	assert_null(cb_kept_find(&it.ix, x, "d"));
	memset(longest, 'n', 256);
	longest[256] = '\0';
	assert_null(cb_kept_add(&it.ix, d, longest));
	longest[255] = '\0';
	assert_non_null(cb_kept_add(&it.ix, d, longest));
	assert_non_null(cb_kept_find(&it.ix, d, longest));
}

static void test_many_names(void **state)
{
	char name[32];

	(void)state;
	cb_kept_set_ino(&it.ix, root(), 2000);
	for (unsigned i = 0; i < 5000; i++) { /* tables grow */
		struct cb_node *n;

		snprintf(name, sizeof(name), "%u", i);
		n = cb_kept_add(&it.ix, root(), name);
		assert_non_null(n);
		cb_kept_set_ino(&it.ix, n, 1 + i % 1000);
		assert_ptr_equal(cb_kept_by_ino(&it.ix, 2000), root());
	}
	for (unsigned i = 0; i < 5000; i++) {
		struct cb_node *n;

		snprintf(name, sizeof(name), "%u", i);
		n = cb_kept_find(&it.ix, root(), name);
		assert_true(n != NULL && strcmp(n->name, name) == 0 && n->ino == 1 + i % 1000);
	}
	for (uint64_t ino = 1; ino <= 1001; ino++) {
		unsigned found = 0;

		for (struct cb_node *n = cb_kept_by_ino(&it.ix, ino); n != NULL; n = cb_kept_next_by_ino(&it.ix, n))
			found += n->ino == ino;
		assert_int_equal(found, ino <= 1000 ? 5 : 0);
	}
}

static void test_inodes_and_hot_ones(void **state)
{
	struct cb_node *n[3];
	unsigned hot = 0;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		n[i] = cb_kept_add(&it.ix, root(), (const char *const[]){ "a", "b", "c" }[i]);
	cb_kept_set_ino(&it.ix, n[0], 7);
	cb_kept_set_ino(&it.ix, n[1], 7);
	cb_kept_set_ino(&it.ix, n[1], 8);
	assert_ptr_equal(cb_kept_by_ino(&it.ix, 7), n[0]);
	assert_ptr_equal(cb_kept_by_ino(&it.ix, 8), n[1]);
	cb_kept_set_ino(&it.ix, n[0], 0);
	assert_null(cb_kept_by_ino(&it.ix, 7));
	for (size_t i = 0; i < 3; i++)
		cb_kept_set_hot(&it.ix, n[i], true);
	cb_kept_set_hot(&it.ix, n[1], false);
	cb_kept_prune(&it.ix, n[2]); /* has no state: it goes, also from the list */
	for (const struct cb_node *h = cb_kept_node(&it.ix, it.ix.head->hot); h != NULL;
	     h = cb_kept_node(&it.ix, h->hot_next))
		hot += h == n[0] ? 1 : 10;
	assert_int_equal(hot, 1);
}

static struct cb_node *named(unsigned i, bool make)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", i);
	return make ? cb_kept_add(&it.ix, root(), name) : cb_kept_find(&it.ix, root(), name);
}

#define MANY 600u /* more than a first table's */

/* From the middle of its inode's, from both ends, and to another's. */
static void test_names_leave_an_inode_in_any_order(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		cb_kept_set_ino(&it.ix, named(i, true), 7);
	for (unsigned i = 0; i < MANY; i++) {
		unsigned left = 0, which = i * 7 % MANY;
		struct cb_node *n = named(which, false);

		if (which % 2 == 0)
			cb_kept_prune(&it.ix, n);
		else
			cb_kept_set_ino(&it.ix, n, 8);
		for (n = cb_kept_by_ino(&it.ix, 7); n != NULL; n = cb_kept_next_by_ino(&it.ix, n))
			left++;
		assert_int_equal(left, MANY - 1 - i);
	}
}

/* Each is given, whatever happens to the one that would be next. */
static void test_who_goes_through_names_that_change(void **state)
{
	unsigned given[8] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct cb_node *n = named(i, true);

		cb_kept_set_ino(&it.ix, n, 7);
		cb_kept_set_hot(&it.ix, n, true);
	}
	for (struct cb_node *n = cb_kept_each_by_ino(&it.ix, 7); n != NULL; n = cb_kept_next_each_by_ino(&it.ix)) {
		char which = n->name[0];

		given[which - '0']++;
		cb_kept_set_ino(&it.ix, n, 7); /* the first now; it does not come again */
		if (which == '7')
			cb_kept_prune(&it.ix, named(6, false));
		if (which == '5')
			cb_kept_set_ino(&it.ix, named(4, false), 8);
		if (which == '3')
			cb_kept_prune(&it.ix, n);
	}
	for (unsigned k = 0; k < 8; k++)
		assert_int_equal(given[k], k != 6 && k != 4);
	memset(given, 0, sizeof(given));
	for (struct cb_node *n = cb_kept_each_hot(&it.ix); n != NULL; n = cb_kept_next_each_hot(&it.ix)) {
		given[n->name[0] - '0']++;
		cb_kept_set_hot(&it.ix, n, false);
		cb_kept_set_hot(&it.ix, n, true);
		if (n->name[0] == '5')
			cb_kept_prune(&it.ix, named(4, false));
		if (n->name[0] == '2')
			cb_kept_set_hot(&it.ix, named(1, false), false);
	}
	assert_true(given[7] == 1 && given[5] == 1 && given[4] == 0 && given[2] == 1 && given[1] == 0 && given[0] == 1);
}

/* The order is another then, and some come again. */
static void test_who_goes_through_names_while_tables_grow(void **state)
{
	bool given[MANY] = { false };
	unsigned first = MANY / 3, i = 0;

	(void)state;
	for (; i < first; i++)
		cb_kept_set_ino(&it.ix, named(i, true), 7);
	for (struct cb_node *n = cb_kept_each_by_ino(&it.ix, 7); n != NULL; n = cb_kept_next_each_by_ino(&it.ix)) {
		given[strtoul(n->name, NULL, 10)] = true;
		for (; i < MANY; i++)
			assert_non_null(named(i, true));
	}
	for (i = 0; i < MANY; i++)
		assert_int_equal(given[i], i < first);
}

static void test_contents(void **state)
{
	cb_slot a = content(), b = content();

	(void)state;
	assert_true(a != b && files_kept() == 2);
	cb_kept_hold(&it.ix, a);
	cb_kept_let_go(&it.ix, a);
	assert_int_equal(files_kept(), 2);
	cb_kept_let_go(&it.ix, a);
	cb_kept_let_go(&it.ix, 0);
	assert_int_equal(files_kept(), 1);
	assert_int_equal(content(), a); /* room is used again */
}

static void test_numbers(void **state)
{
	(void)state;
	assert_int_equal(cb_kept_begin(&it.ix, 3), 0);
	assert_int_equal(cb_kept_begin(&it.ix, 3), -EEXIST);
	assert_int_equal(cb_kept_begin(&it.ix, 2), -EEXIST);
	assert_int_equal(cb_kept_begin(&it.ix, 9), 0);
	assert_true(cb_kept_has(&it.ix, 3) && cb_kept_has(&it.ix, 9) && !cb_kept_has(&it.ix, 4));
	assert_int_equal(cb_kept_drop(&it.ix, 4), -ENOENT);
	assert_int_equal(cb_kept_drop(&it.ix, 3), 0);
	assert_int_equal(cb_kept_drop(&it.ix, 3), -ENOENT);
	assert_int_equal(cb_kept_begin(&it.ix, 9), -EEXIST);
}

static void test_it_is_found_again_unless_it_was_left_half_done(void **state)
{
	struct cb_kept other;

	(void)state;
	assert_int_equal(cb_kept_begin(&it.ix, 5), 0);
	assert_int_equal(cb_kept_open(it.store, false, &other), -ENOENT); /* busy */
	cb_kept_close(&it.ix);
	assert_int_equal(cb_kept_open(it.store, false, &it.ix), 0);
	assert_true(cb_kept_has(&it.ix, 5));
	assert_int_equal(cb_kept_begin(&it.ix, 6), 0);
	(void)content();
	assert_int_equal(cb_kept_open(it.store, true, &other), 0); /* who held it has died */
	assert_false(cb_kept_has(&other, 5));
	assert_int_equal(files_kept(), 0);
	cb_kept_close(&it.ix);
	it.ix = other;
}

/* ---- against a model ---- */

#define NAMES 6
#define STEPS 400
#define LIVING 8
static const char *const names[NAMES] = { "a", "b", "c", "d", "x", "y" }; /* the last two in d */
enum { FOLDER = 3, BELOW = 4 };

static struct cb_node *node(int i, bool make)
{
	struct cb_node *above = i < BELOW ? root() : cb_kept_find(&it.ix, root(), names[FOLDER]), *n = NULL;

	if (above == NULL && make)
		above = cb_kept_add(&it.ix, root(), names[FOLDER]);
	if (above != NULL)
		n = cb_kept_find(&it.ix, above, names[i]);
	return n == NULL && make ? cb_kept_add(&it.ix, above, names[i]) : n;
}

static void change(int i, long size)
{
	struct cb_state s = { .kind = size < 0 ? CB_STATE_ABSENT : CB_STATE_ENTRY, .size = size };
	struct cb_node *n = node(i, size >= 0);

	if (n == NULL)
		return;
	if (size >= 0)
		s.content = content();
	assert_int_equal(cb_kept_set(&it.ix, n, &s), 0);
	cb_kept_prune(&it.ix, n);
}

struct model {
	uint32_t number;
	long sizes[NAMES];
};

static void compare(const struct model *m, size_t count)
{
	for (size_t k = 0; k < count; k++) {
		assert_true(cb_kept_has(&it.ix, m[k].number));
		for (int i = 0; i < NAMES; i++) {
			const struct cb_state *s = cb_kept_at(&it.ix, node(i, false), m[k].number);

			assert_int_equal(s != NULL ? s->size : -1, m[k].sizes[i]);
		}
	}
}

static void test_states_against_a_model(void **state)
{
	struct model m[LIVING + 1];
	long now[NAMES] = { -1, -1, -1, -1, -1, -1 };
	size_t count = 0;

	(void)state;
	srandom(1);
	for (uint32_t number = 1; number <= STEPS; number++) {
		assert_int_equal(cb_kept_begin(&it.ix, number), 0);
		for (long n = random() % 5; n > 0; n--) {
			int i = (int)(random() % NAMES);

			now[i] = random() % 3 == 0 ? -1 : random() % 100000;
			change(i, now[i]);
		}
		m[count].number = number;
		memcpy(m[count++].sizes, now, sizeof(now));
		while (count > LIVING || (count > 0 && random() % 4 == 0)) {
			size_t gone = (size_t)random() % count;

			assert_int_equal(cb_kept_drop(&it.ix, m[gone].number), 0);
			memmove(m + gone, m + gone + 1, (--count - gone) * sizeof(*m));
		}
		compare(m, count);
		assert_true(files_kept() <= NAMES * (LIVING + 2));
	}
	assert_int_equal(cb_kept_begin(&it.ix, STEPS + 1), 0);
	for (int i = 0; i < NAMES; i++)
		change(i, -1);
	while (count > 0)
		assert_int_equal(cb_kept_drop(&it.ix, m[--count].number), 0);
	assert_int_equal(cb_kept_drop(&it.ix, STEPS + 1), 0);
	for (int i = NAMES - 1; i >= 0; i--)
		if (node(i, false) != NULL)
			cb_kept_prune(&it.ix, node(i, false));
	assert_int_equal(files_kept(), 0);
	assert_int_equal(it.ix.head->nodes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_inodes_and_hot_ones, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names_leave_an_inode_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_goes_through_names_that_change, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_goes_through_names_while_tables_grow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_contents, setup, teardown),
		cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_it_is_found_again_unless_it_was_left_half_done, setup, teardown),
		cmocka_unit_test_setup_teardown(test_states_against_a_model, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
