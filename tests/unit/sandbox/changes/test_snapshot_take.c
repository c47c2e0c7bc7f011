/* What a look at a layer costs, counted: files with many names, and what the kernel tells of them. */
#include "../../../../sandbox/changes/overlay_changes.h"
#include "../../../../sandbox/changes/snapshot_parts.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define LINKS 4000u
#define EVENTS 3000u /* fit into one batch */
#define BIG (256u << 10)

static struct {
	char path[64];
	int store, upper;
	uint32_t number;
	struct cb_kept ix;
} it;

static int looks_left = -1; /* until we are told to stop; -1: never */

/* In the place of the C library's. */
int fstatat(int folder, const char *restrict name, struct stat *restrict st, int flags)
{
	if (looks_left == 0)
		(void)raise(SIGUSR1);
	looks_left -= looks_left >= 0;
	return (int)syscall(SYS_newfstatat, folder, name, st, flags);
}

static int open_made(const char *name)
{
	return mkdir(name, 0755) < 0 ? -1 : open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int setup(void **state)
{
	(void)state;
	snprintf(it.path, sizeof(it.path), "/tmp/cb-take-XXXXXX");
	if (mkdtemp(it.path) == NULL || chdir(it.path) < 0)
		return -1;
	it.number = 0;
	it.store = open_made("store");
	it.upper = open_made("upper");
	return it.store < 0 || it.upper < 0 ? -1 : cb_kept_open(it.store, true, &it.ix);
}

static int teardown(void **state)
{
	(void)state;
	cb_kept_close(&it.ix);
	close(it.store);
	close(it.upper);
	return chdir("/") < 0 ? -1 : folder_remove(it.path);
}

/* Returns how many names were looked at. `watch` is read from its beginning. */
static unsigned long long look(int watch)
{
	struct cb_tally tally = { 0 };

	assert_true(watch < 0 || lseek(watch, 0, SEEK_SET) == 0);
	assert_int_equal(cb_kept_begin(&it.ix, ++it.number), 0);
	assert_int_equal(cb_snapshot_look(&it.ix, it.upper, watch, &tally), 0);
	return tally.entries;
}

/* `fd` holds, once more, what the kernel would tell. */
static void tell(int fd, const char *changed, uint64_t what)
{
	char event[sizeof(struct fanotify_event_metadata) + sizeof(struct fanotify_event_info_fid) +
		   sizeof(struct file_handle) + 12];
	struct fanotify_event_metadata m = { .event_len = sizeof(event),
					     .vers = FANOTIFY_METADATA_VERSION,
					     .metadata_len = sizeof(m),
					     .mask = what,
					     .fd = FAN_NOFD };
	struct fanotify_event_info_fid info = { .hdr = { .info_type = FAN_EVENT_INFO_TYPE_FID,
							 .len = sizeof(event) - sizeof(m) } };
	const struct file_handle handle = { .handle_bytes = 12 };
	char *p = event;
	struct stat st;
	uint64_t ino;

	assert_int_equal(stat(changed, &st), 0);
	ino = st.st_ino;
	memcpy(p, &m, sizeof(m));
	p += sizeof(m);
	memcpy(p, &info, sizeof(info));
	p += sizeof(info);
	memcpy(p, &handle, sizeof(handle));
	p += sizeof(handle);
	memset(p, 0, 4);
	memcpy(p + 4, &ino, sizeof(ino));
	assert_int_equal(cb_fd_write_all(fd, event, sizeof(event)), 0);
}

static int told(const char *changed, unsigned times)
{
	int fd = open("told", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (unsigned i = 0; i < times; i++)
		tell(fd, changed, FAN_MODIFY);
	return fd;
}

static void make_names(unsigned count)
{
	char name[32];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "upper/%05u", i);
		assert_int_equal(link("upper/f", name), 0);
	}
}

static int make_file(size_t size)
{
	int fd = open("upper/f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	static char data[BIG];

	memset(data, 'x', sizeof(data)); /* no hole: those are not read */
	assert_true(fd >= 0 && size <= BIG && pwrite(fd, data, size, 0) == (ssize_t)size);
	return fd;
}

/* One word of one file makes us look at each of its names, once. From its first name we come to the last without
 * beginning at the first again: that would be too many steps, and everything would be looked at instead. */
static void test_each_name_is_looked_at_once(void **state)
{
	(void)state;
	close(make_file(1));
	make_names(LINKS - 1);
	(void)look(-1);
	CB_AUTO_FD once = told("upper/f", 1);
	assert_int_equal(look(once), LINKS);
	CB_AUTO_FD again = told("upper/f", 10);
	assert_int_equal(look(again), LINKS);
}

/* Each word would have us go through all names. */
static void test_many_words_of_many_names(void **state)
{
	(void)state;
	close(make_file(1));
	make_names(LINKS - 1);
	(void)look(-1);
	CB_AUTO_FD often = told("upper/f", EVENTS);
	assert_int_equal(look(often), 2 * LINKS); /* by the first, and then with everything */
	assert_int_equal(it.ix.head->whole, 0);
}

static unsigned long long bytes_read(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n = 0;

	if (f == NULL || fscanf(f, "rchar: %llu", &n) != 1)
		n = 0;
	if (f != NULL)
		fclose(f);
	return n;
}

static unsigned long long cost_of_a_look(void)
{
	unsigned long long before = bytes_read();

	(void)look(-1);
	return bytes_read() - before;
}

static struct cb_state *kept(const char *name)
{
	struct cb_node *n = cb_kept_find(&it.ix, cb_kept_node(&it.ix, it.ix.head->root), name);

	assert_non_null(n);
	return cb_kept_state(&it.ix, n->state);
}

static void test_a_file_that_is_held_open_is_read_once(void **state)
{
	CB_AUTO_FD fd = make_file(BIG);
	unsigned long long alone;
	char name[32];

	(void)state;
	if (bytes_read() == 0)
		skip(); /* the kernel does not count */
	(void)look(-1);
	alone = cost_of_a_look();
	assert_true(alone >= 2 * BIG); /* it and its copy: nobody says whether it has changed */
	make_names(100);
	(void)look(-1);
	assert_true(cost_of_a_look() < alone + BIG);
	assert_int_equal(pwrite(fd, "again", 5, 0), 5); /* all are old then, and the last of them was looked at first */
	(void)look(-1);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%05u", i);
		assert_int_equal(kept(name)->content, kept("f")->content);
	}
}

/* Its times say nothing of that. */
static void test_what_was_changed_through_memory_is_kept_for_each_name(void **state)
{
	CB_AUTO_FD fd = make_file(4096);
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), path[64], name[CB_CONTENT_NAME];

	(void)state;
	assert_true(memory != MAP_FAILED);
	make_names(5);
	for (char c = 'a'; c < 'e'; c++) {
		memory[0] = c;
		(void)look(-1);
		for (unsigned i = 0; i < 5; i++) {
			char have = 0;

			snprintf(path, sizeof(path), "%05u", i);
			cb_kept_content_name(kept(path)->content, name);
			CB_AUTO_FD copy = openat(it.store, name, O_RDONLY | O_CLOEXEC);
			assert_int_equal(read(copy, &have, 1), 1);
			assert_int_equal(have, c);
		}
	}
	munmap(memory, 4096);
}

static void await_settled(void)
{
	struct stat st;
	struct timespec now;

	assert_int_equal(lstat("upper/f", &st), 0);
	do
		(void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
	while ((now.tv_sec - st.st_ctim.tv_sec) * 1000 + (now.tv_nsec - st.st_ctim.tv_nsec) / 1000000 <= 30);
}

/* Here it is the copy that changes, which is the same to who compares them. */
static void change_copy(void)
{
	char name[CB_CONTENT_NAME];
	CB_AUTO_FD copy =
		openat(it.store, cb_kept_content_name(kept("f")->content, name), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	assert_int_equal(pwrite(copy, "!", 1, 0), 1);
}

/* Whether each name has one content, another than `old`. */
static bool is_anew(cb_slot old)
{
	return kept("f")->content != old && kept("00000")->content == kept("f")->content;
}

/* Who could write to it, and had it mapped perhaps, has closed it: its times say nothing. */
static void test_what_was_closed_is_compared(void **state)
{
	static const struct {
		uint64_t first, then;
	} words[] = { { FAN_CLOSE_WRITE, 0 }, { FAN_OPEN, FAN_CLOSE_WRITE }, { FAN_CLOSE_WRITE, FAN_CLOSE_WRITE } };
	cb_slot before;

	(void)state;
	close(make_file(4096));
	make_names(1);
	await_settled();
	(void)look(-1);
	for (size_t i = 0; i < 3; i++) {
		CB_AUTO_FD fd = told("upper/f", 0);

		before = kept("f")->content;
		change_copy();
		tell(fd, "upper/f", words[i].first);
		if (words[i].then != 0)
			tell(fd, "upper/f", words[i].then);
		(void)look(fd);
		assert_true(is_anew(before));
	}
	before = kept("f")->content;
	change_copy();
	CB_AUTO_FD opened = told("upper/f", 0);
	tell(opened, "upper/f", FAN_OPEN);
	(void)look(opened);
	assert_false(is_anew(before)); /* who only read it has changed nothing */
	CB_AUTO_FD lost = told("upper/f", 0);
	tell(lost, "upper/f", FAN_Q_OVERFLOW);
	(void)look(lost);
	assert_true(is_anew(before)); /* nobody knows what was missed */
}

/* Where the kernel tells nothing, the access time does, which each mapping sets. */
static void test_what_was_accessed_is_compared(void **state)
{
	struct stat st, read_since;
	cb_slot before;
	char c;

	(void)state;
	close(make_file(4096));
	make_names(1);
	await_settled();
	(void)look(-1);
	before = kept("f")->content;
	change_copy();
	(void)look(-1);
	assert_int_equal(kept("f")->content, before);
	CB_AUTO_FD file = open("upper/f", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(file, &st), 0);
	assert_int_equal(read(file, &c, 1), 1);
	assert_int_equal(fstat(file, &read_since), 0);
	if (read_since.st_atim.tv_sec == st.st_atim.tv_sec && read_since.st_atim.tv_nsec == st.st_atim.tv_nsec)
		skip(); /* /tmp is mounted without access times */
	(void)look(-1);
	assert_true(is_anew(before));
}

/* The last: it can't be taken back. */
static void test_it_stops_at_any_name(void **state)
{
	(void)state;
	close(make_file(1));
	make_names(LINKS - 1);
	(void)look(-1);
	CB_AUTO_FD once = told("upper/f", 1);
	cb_layer_stop_on(SIGUSR1);
	looks_left = 10;
	assert_in_range(look(once), 1, 11);
	assert_int_equal(it.ix.head->whole, 1); /* the next look is at everything */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_name_is_looked_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_words_of_many_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_file_that_is_held_open_is_read_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_was_changed_through_memory_is_kept_for_each_name, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_what_was_closed_is_compared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_was_accessed_is_compared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_it_stops_at_any_name, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
