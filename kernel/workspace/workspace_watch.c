/* Watches the size of a writable workspace.
 *
 * Trust domain: supervisor. workspace.mode "rw" is the folder itself, so nothing can hold its size: it is looked at
 * instead, by the broker, in the background, after cells and seldom where a look takes long, and not at all where
 * workspace.size sets none. What is found is said in the next cell, once, and in the log at the end.
 */
#include "workspace_watch.h"

#include <cellblock/clock.h>
#include <cellblock/log.h>
#include <jansson.h>

#include "policy/policy.h"
#include "python/broker_queue.h"
#include "python/guest.h"

#define MS 1000000LL
#define PAUSE (2000 * MS) /* between two looks, at least */
#define SHARE 20	  /* of the time, one part is spent looking */
#define END_MS 1500 /* clients wait for two and a half seconds */

static void add_note(struct cb_workspace_watch *w, const char *head, const char *what, const char *tail)
{
	size_t n = strlen(w->note);

	snprintf(w->note + n, sizeof(w->note) - n, "[cellblock: %s%s%s]\n", head, what, tail);
}

static void compare_size(struct cb_workspace_watch *w, uint64_t limit, const json_t *bytes)
{
	uint64_t now = (uint64_t)json_integer_value(bytes), grown;
	char text[160];

	if (!json_is_integer(bytes))
		return;
	if (!w->known)
		w->bytes = now;
	w->known = true;
	grown = now > w->bytes ? now - w->bytes : 0;
	if (grown > limit && !w->over) {
		snprintf(text, sizeof(text), "%llu bytes, more than workspace.size = %llu", (unsigned long long)grown,
			 (unsigned long long)limit);
		add_note(w, "the workspace has grown by ", text, "; workspace.mode \"rw\" cannot hold it");
	}
	w->over = grown > limit;
}

/* A folder with more entries than a look counts, or one that can't be read whole. */
static void tell_uncounted(struct cb_workspace_watch *w)
{
	if (!w->uncounted)
		add_note(w, "workspace.size is not watched: ", "the workspace can't be counted whole",
			 " (it has more than 200,000 entries, or changes too fast)");
	w->uncounted = true;
}

static void on_answer(const struct cb_broker_ask *ask, struct cb_buf *answer, int r)
{
	struct cb_workspace *ws = ask->context;
	struct cb_workspace_watch *w = &ws->watch;
	json_auto_t *root = r == 0 ? json_loadb((const char *)answer->data, answer->len, JSON_ALLOW_NUL, NULL) : NULL;
	const char *status = json_string_value(json_object_get(root, "status"));
	int64_t now = cb_now_ns(), rest = SHARE * (now - w->asked_ns);

	w->looking = false;
	w->not_before = now + (rest > PAUSE ? rest : PAUSE);
	if (status == NULL || strcmp(status, "ok") != 0)
		return;
	if (json_is_true(json_object_get(root, "cut")))
		tell_uncounted(w);
	else
		compare_size(w, ws->policy->workspace_size, json_object_get(root, "bytes"));
}

static void ask(struct cb_workspace *ws)
{
	struct cb_workspace_watch *w = &ws->watch;

	if (ws->mode != CB_WORKSPACE_RW || ws->policy->workspace_size == 0 || w->looking || ws->guest->broker.fd < 0)
		return;
	w->asked_ns = cb_now_ns();
	w->looking = true;
	cb_broker_queue_ask(ws->queue,
			    &(struct cb_broker_ask){ .op = CB_BROKER_LOOK, .on_answer = on_answer, .context = ws });
}

void cb_workspace_watch_start(struct cb_workspace *ws)
{
	ask(ws);
}

void cb_workspace_watch_cell_ended(struct cb_workspace *ws)
{
	if (cb_now_ns() >= ws->watch.not_before)
		ask(ws);
}

void cb_workspace_watch_end(struct cb_workspace *ws)
{
	struct cb_workspace_watch *w = &ws->watch;
	int64_t until = cb_now_ns() + END_MS * MS;

	if (!w->known) /* nothing to compare with */
		return;
	ask(ws);
	while (w->looking && cb_now_ns() < until)
		cb_broker_queue_wait(ws->queue, END_MS);
	if (w->note[0] != '\0')
		cb_log(CB_LOG_WARNING, "%s", w->note);
}
