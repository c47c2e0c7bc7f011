/* Speaking to the zygotes of warm start: see ask_zygote.h.
 *
 * Role: finds them in their folder, asks what they tell of themselves, has them end. Trust domain: supervisor's
 * program. A zygote has loaded modules of others: its answer is bounded, read as numbers and texts, and waited for a
 * second; a word that is not known is passed over. Invariant: a zygote lives as long as its lock is held.
 */
#include "ask_zygote.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>
#include <cellblock/sandbox.h>
#include <cellblock/visible.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>

#define ANSWER_MAX 16384
#define END_MS 2000
#define LOOK_MS 10

/* False if it has ended, and not because it could not serve. */
static bool is_known(int folder, struct cb_zygote *z)
{
	char why[CB_WARM_WHY_MAX];
	CB_AUTO_FD lock = -1;
	int r = cb_warm_lock(folder, z->key, LOCK_SH, &lock);

	if (r == -EWOULDBLOCK)
		return true;
	if (r < 0 || !cb_warm_has_failed(lock, why) || cb_visible(why, strlen(why), z->why, sizeof(z->why)) == 0)
		return false;
	z->state = CB_ZYGOTE_FAILED;
	return true;
}

/* What is too much is not shown. */
static int find_keys(int folder, char (*ret_keys)[CB_WARM_KEY_LEN + 1], size_t *ret_count)
{
	int r = cb_warm_keys(folder, ret_keys, CB_ZYGOTES_MAX, ret_count);

	return r == -E2BIG ? 0 : r;
}

/* ---- its socket ---- */

static int reach(int folder, const char *key, int *ret_fd)
{
	const struct timeval second = { .tv_sec = 1 };
	const struct sockaddr_un address = cb_warm_address(folder, key);
	CB_AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second)) < 0 ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* One packet of at most `size` bytes; descriptors that came along are dropped. */
static int take_packet(int fd, void *data, size_t size, size_t *ret_len)
{
	ssize_t n = recv(fd, data, size, MSG_TRUNC);

	if (n < 0)
		return -errno;
	if (n == 0 || (size_t)n > size)
		return -EBADMSG;
	*ret_len = (size_t)n;
	return 0;
}

static int take_hello(int fd)
{
	static struct {
		struct cb_warm_hello head;
		char stamp[CB_WARM_STAMP_MAX];
	} hello;
	size_t n = 0;
	int r = take_packet(fd, &hello, sizeof(hello), &n);

	if (r < 0)
		return r;
	return n >= sizeof(hello.head) && n - sizeof(hello.head) == hello.head.stamp_len ? 0 : -EBADMSG;
}

static int say(int fd, enum cb_warm_op op)
{
	const struct cb_warm_request request = { .op = op, .version = CB_WARM_VERSION };

	return send(fd, &request, sizeof(request), MSG_NOSIGNAL) == (ssize_t)sizeof(request) ? 0 : -errno;
}

/* ---- what it tells ---- */

static int64_t number_of(const char *text, size_t len)
{
	int64_t n = 0;

	if (len == 0 || len > 15)
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		n = n * 10 + (text[i] - '0');
	}
	return n;
}

/* One line; whether it is one that is known. */
static bool take_word(struct cb_zygote *z, const char *line, size_t len)
{
	const char *space = memchr(line, ' ', len), *value = space != NULL ? space + 1 : line + len;
	size_t word = space != NULL ? (size_t)(space - line) : len, rest = len - (size_t)(value - line);
	const struct {
		const char *word;
		int64_t *number;
	} numbers[] = { { "age", &z->age }, { "living", &z->living }, { "made", &z->made } };

	for (size_t i = 0; i < CB_COUNT(numbers); i++) {
		if (strlen(numbers[i].word) == word && memcmp(line, numbers[i].word, word) == 0) {
			*numbers[i].number = number_of(value, rest);
			return *numbers[i].number >= 0;
		}
	}
	if (word == strlen("python") && memcmp(line, "python", word) == 0)
		return cb_visible(value, rest, z->python, sizeof(z->python)) > 0;
	if (word == strlen("preloaded") && memcmp(line, "preloaded", word) == 0)
		(void)cb_visible(value, rest, z->preloaded, sizeof(z->preloaded));
	if (word == strlen("left_out") && memcmp(line, "left_out", word) == 0)
		(void)cb_visible(value, rest, z->left_out, sizeof(z->left_out));
	return false;
}

int cb_zygote_read(struct cb_zygote *z, const char *text, size_t len)
{
	size_t known = 0;

	for (const char *at = text, *end = text + len; at < end;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *stop = newline != NULL ? newline : end;

		known += take_word(z, at, (size_t)(stop - at));
		at = stop + (newline != NULL);
	}
	return known > 0 ? 0 : -EBADMSG;
}

static int take_answer(struct cb_zygote *z, int fd)
{
	char text[ANSWER_MAX];
	size_t n = 0;
	int r = take_packet(fd, text, sizeof(text), &n);

	return r == 0 ? cb_zygote_read(z, text, n) : r;
}

/* Pss; -1: not known; where others' maps can't be read, the whole of what it has. */
static int64_t memory_of(pid_t pid)
{
	char path[64], text[4096];
	struct cb_proc_stat stat;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	if (cb_proc_text(AT_FDCWD, path, text, sizeof(text)) == 0)
		return (int64_t)cb_proc_bytes(text, "\nPss:");
	return cb_proc_stat_of(pid, &stat) == 0 ? (int64_t)stat.resident_bytes : -1;
}

static void ask(int folder, struct cb_zygote *z)
{
	struct ucred peer = { .pid = 0 };
	socklen_t size = sizeof(peer);
	CB_AUTO_FD fd = -1;
	int r = reach(folder, z->key, &fd);

	if (r == -ECONNREFUSED || r == -ENOENT) { /* or it has just ended */
		z->state = CB_ZYGOTE_STARTING;
		return;
	}
	if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
		z->pid = peer.pid;
	if (z->pid > 0)
		z->memory = memory_of(z->pid);
	if (r == 0)
		r = take_hello(fd);
	if (r == 0)
		r = say(fd, CB_WARM_TELL);
	if (r == 0)
		r = take_answer(z, fd);
	z->state = r == 0 ? CB_ZYGOTE_READY : CB_ZYGOTE_SILENT;
}

int cb_zygotes_find(int folder, struct cb_zygote_list *ret_list)
{
	char keys[CB_ZYGOTES_MAX][CB_WARM_KEY_LEN + 1];
	struct cb_zygote_list list = { 0 };
	size_t n = 0;
	int r = find_keys(folder, keys, &n);

	if (r < 0)
		return r;
	list.item = calloc(n + 1, sizeof(*list.item));
	if (list.item == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct cb_zygote *z = &list.item[list.count];

		*z = (struct cb_zygote){ .age = -1, .living = -1, .made = -1, .memory = -1 };
		memcpy(z->key, keys[i], sizeof(z->key));
		if (!is_known(folder, z))
			continue;
		if (z->state != CB_ZYGOTE_FAILED)
			ask(folder, z);
		list.count++;
	}
	*ret_list = list;
	return 0;
}

void cb_zygotes_release(struct cb_zygote_list *list)
{
	free(list->item);
	*list = (struct cb_zygote_list){ 0 };
}

/* ---- the end ---- */

int cb_zygote_end(int folder, const char *key)
{
	static const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
	int64_t until = cb_now_ms() + END_MS;
	CB_AUTO_FD fd = -1; /* stays open: it reads before it sees that we are gone */

	for (;;) {
		CB_AUTO_FD lock = -1;
		int r;

		if (fd < 0 && reach(folder, key, &fd) == 0) {
			(void)take_hello(fd);
			(void)say(fd, CB_WARM_END);
		}
		r = cb_warm_lock(folder, key, LOCK_EX, &lock);
		if (r == 0)
			cb_warm_remove(folder, key, lock);
		if (r != -EWOULDBLOCK)
			return r == -ENOENT ? 0 : r;
		if (cb_now_ms() >= until)
			return -ETIMEDOUT;
		(void)nanosleep(&pause, NULL);
	}
}

void cb_zygotes_sweep(int folder)
{
	char keys[CB_ZYGOTES_MAX][CB_WARM_KEY_LEN + 1];
	size_t n = 0;

	if (find_keys(folder, keys, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		CB_AUTO_FD lock = -1;

		if (cb_warm_lock(folder, keys[i], LOCK_EX, &lock) == 0)
			cb_warm_remove(folder, keys[i], lock);
	}
}
