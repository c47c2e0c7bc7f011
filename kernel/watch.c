/* Watches a writable workspace: its size, and new entries that programs outside would execute.
 *
 * Trust domain: supervisor. workspace.mode "rw" binds the folder itself, so nothing can hold its size, and what a mount
 * protects must exist: both are looked at instead, by the broker, in the background, after cells and seldom where a
 * look takes long. What is found is said in the next cell, once, and in the log at the end.
 *
 * Callers: commands/kernel.c, execution.c.
 */
#include "watch.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <poll.h>

#include "ask_broker.h"
#include "kernel.h"

#define MS 1000000LL
#define PAUSE (2000 * MS) /* between two looks, at least */
#define SHARE 20	  /* of the time, one part is spent looking */
#define END_MS 400
#define TEXT_MAX (8u << 20)
#define KNOWN_MAX 4096
#define NAMES_MAX 600
#define NOTE_REST 400 /* for heads, counts and the size */

void cb_watch_init(struct cb_kernel *k)
{
	k->watch = (struct cb_watch){ .fd = -1, .slot = -1, .text = CB_BUF_INIT(TEXT_MAX) };
}

static void add_note(struct cb_watch *w, const char *head, const char *what, const char *tail)
{
	size_t n = strlen(w->note);

	snprintf(w->note + n, sizeof(w->note) - n, "[cellblock: %s%s%s]\n", head, what, tail);
}

/* Names as long as there is room, then how many more. */
struct names {
	char text[NAMES_MAX];
	size_t room; /* of text, for names */
	unsigned more;
};

static void add_name(struct names *n, const char *path)
{
	size_t used = strlen(n->text);

	if (n->more > 0 || used + strlen(path) + 2 >= n->room) {
		n->more++;
		return;
	}
	snprintf(n->text + used, sizeof(n->text) - used, "%s%s", used > 0 ? ", " : "", path);
	for (char *p = n->text + used; *p != '\0'; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

static void tell_new(struct cb_watch *w, const struct names *n)
{
	static const char head[] = "new in the workspace, and programs outside may execute it (workspace.protect): ";
	char more[64] = "";

	if (n->more > 0)
		snprintf(more, sizeof(more), "%s%u%s", n->text[0] != '\0' ? " and " : "", n->more,
			 n->text[0] != '\0' ? " more" : " entries");
	if (n->text[0] != '\0' || n->more > 0)
		add_note(w, head, n->text, more);
}

static void find_new(struct cb_kernel *k, const json_t *list)
{
	struct cb_watch *w = &k->watch;
	size_t told = strlen(w->note);
	struct names n = { .room = told + NAMES_MAX + NOTE_REST < sizeof(w->note) ? NAMES_MAX : 0 };
	bool first = w->known == NULL;

	/* a hostile cell has ever new names: those of long ago may be told again */
	if (w->known != NULL && json_object_size(w->known) > KNOWN_MAX) {
		json_t *kept = json_object();

		for (size_t i = 0; i < json_array_size(list); i++) {
			const char *path = json_string_value(json_array_get(list, i));

			if (path != NULL && json_object_get(w->known, path) != NULL)
				json_object_set_new(kept, path, json_true());
		}
		json_decref(w->known);
		w->known = kept;
	}
	if (first)
		w->known = json_object();
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *path = json_string_value(json_array_get(list, i));

		if (path == NULL || json_object_get(w->known, path) != NULL)
			continue;
		json_object_set_new(w->known, path, json_true());
		if (first)
			continue;
		add_name(&n, path);
		cb_audit_protected(k, path);
	}
	tell_new(w, &n);
}

static void compare_size(struct cb_watch *w, uint64_t limit, const json_t *bytes, bool first)
{
	uint64_t now = (uint64_t)json_integer_value(bytes);
	uint64_t grown = now > w->bytes ? now - w->bytes : 0;
	char text[160];

	if (!json_is_integer(bytes))
		return;
	if (first)
		w->bytes = now;
	else if (grown > limit && !w->over) {
		snprintf(text, sizeof(text), "%llu bytes, more than workspace.size = %llu", (unsigned long long)grown,
			 (unsigned long long)limit);
		add_note(w, "the workspace has grown by ", text, "; workspace.mode \"rw\" cannot hold it");
	}
	w->over = !first && grown > limit;
}

static void finish(struct cb_kernel *k)
{
	struct cb_watch *w = &k->watch;
	json_t *root = json_loadb((const char *)w->text.data, w->text.len, JSON_ALLOW_NUL, NULL);
	const char *status = json_string_value(json_object_get(root, "status"));
	int64_t now = cb_now_ns(), rest = SHARE * (now - w->asked_ns);
	bool first = w->known == NULL;

	w->not_before = now + (rest > PAUSE ? rest : PAUSE);
	if (status != NULL && strcmp(status, "ok") == 0) {
		find_new(k, json_object_get(root, "protected"));
		compare_size(w, k->policy->workspace_size, json_object_get(root, "bytes"), first);
	}
	json_decref(root);
	cb_loop_remove(&k->loop, &w->slot);
	cb_fd_close(&w->fd);
	cb_buf_release(&w->text);
}

static void on_watch(void *context, short revents)
{
	struct cb_kernel *k = context;

	(void)revents;
	if (cb_ask_broker_read(k->watch.fd, &k->watch.text))
		finish(k);
}

static void ask(struct cb_kernel *k)
{
	struct cb_watch *w = &k->watch;

	if (k->workspace_mode != CB_WORKSPACE_RW || w->fd >= 0 || k->guest.broker.fd < 0)
		return;
	if (cb_ask_broker(k, CB_BROKER_LOOK, 0, on_watch, &w->fd, &w->slot) == 0)
		w->asked_ns = cb_now_ns();
}

void cb_watch_start(struct cb_kernel *k)
{
	ask(k);
}

void cb_watch_cell_ended(struct cb_kernel *k)
{
	if (cb_now_ns() >= k->watch.not_before)
		ask(k);
}

void cb_watch_end(struct cb_kernel *k)
{
	struct cb_watch *w = &k->watch;
	int64_t until = cb_now_ns() + END_MS * MS;

	if (w->known == NULL) /* nothing to compare with */
		return;
	ask(k);
	while (w->fd >= 0 && cb_now_ns() < until) {
		struct pollfd p = { .fd = w->fd, .events = POLLIN };

		if (poll(&p, 1, END_MS) > 0)
			on_watch(k, POLLIN);
	}
	if (w->note[0] != '\0')
		cb_log(CB_LOG_WARNING, "%s", w->note);
}

void cb_watch_release(struct cb_kernel *k)
{
	cb_loop_remove(&k->loop, &k->watch.slot);
	cb_fd_close(&k->watch.fd);
	cb_buf_release(&k->watch.text);
	json_decref(k->watch.known);
}
