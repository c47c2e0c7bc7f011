/* Twins: take-over.
 *
 * Trust domain: supervisor; see twins.c. A take-over that fails goes on to the next older twin, and in the end to the
 * death of the jail, which is the path that there was before. One that was woken and failed is not heard any more.
 *
 * Callers: guest.c (a guest's end), guest_frames.c (RESUMED), twins_make.c (rollback), snapshots.c (files), twins.c
 * (what pid 1 says).
 */
#include <cellblock/fd.h>
#include <cellblock/log.h>

#include "failure.h"
#include "kernel.h"
#include "twins_parts.h"

#define MS 1000000LL
#define RESTORE_DEADLINE (15000 * MS) /* RESTORE to RESUMED */
#define SILENT_MAX 3		      /* who waits for a cell waits for each of them */

static void begin(struct cb_kernel *k, struct cb_twin *t)
{
	k->twins.waking = t;
	k->twins.stopped_ns = cb_now_ns();
	cb_log(CB_LOG_INFO, "twin %u takes over", t->number);
	if (cb_guest_tell_init(k, CB_INIT_RESTORE, (int)t->number) < 0)
		cb_guest_kill(k, "pid 1 of the jail does not take messages");
	else
		cb_loop_arm(&k->loop, k->twins.deadline_timer, cb_now_ns() + RESTORE_DEADLINE);
}

/* For those who ask what this take-over undoes; how many cells. */
static size_t note_undone(struct cb_twins *w, const struct cb_twin *t, int64_t *ret_first, int64_t *ret_last)
{
	size_t n;

	cb_buf_clear(&w->undone);
	if (cb_past_after(&w->past, t->cell, &w->undone, ret_first, ret_last, &n) < 0)
		cb_buf_clear(&w->undone);
	w->restored_to = t->count;
	return n;
}

static bool replace(struct cb_kernel *k, struct cb_twin *t)
{
	struct cb_twins *w = &k->twins;
	int64_t first, last;

	if (k->guest.state != CB_GUEST_UP || k->shutting_down || t == NULL)
		return false;
	if (w->coming != NULL && w->coming != t) /* it dies with the guest */
		cb_twins_forget(k, w->coming);
	cb_loop_remove(&k->loop, &w->leash_slot);
	w->coming = NULL;
	w->asked = w->fallen = false;
	w->silent = 0;
	cb_loop_arm(&k->loop, w->idle_timer, 0);
	cb_guest_restoring(k);
	cb_execution_stopped(k);
	(void)note_undone(w, t, &first, &last);
	cb_lanes_guest_died(k); /* after what the dead one has used is known */
	begin(k, t);
	return true;
}

bool cb_twins_take_over(struct cb_kernel *k)
{
	bool done = replace(k, cb_twins_next(&k->twins));

	if (done)
		k->checkpoints.rolling = false;
	return done;
}

bool cb_twins_go_to(struct cb_kernel *k, struct cb_twin *t)
{
	return replace(k, t);
}

/* The one that was to take over did not. */
static void fall_back(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;
	struct cb_twin *t;

	cb_twins_forget(k, w->waking);
	if (k->guest.rules.phase == CB_PHASE_WAKING) { /* it has the guest's place already */
		cb_loop_remove(&k->loop, &k->guest.link_slot); /* not heard any more */
		cb_guest_set_idle(k);
		w->fallen = true;
	}
	k->checkpoints.rolling = false;
	t = cb_twins_next(w);
	if (t != NULL)
		begin(k, t);
	else
		cb_guest_kill(k, "no twin could take over");
}

void cb_twins_failed(struct cb_kernel *k)
{
	if (k->twins.waking != NULL)
		fall_back(k);
}

/* Without a word from pid 1 there is nobody to ask for another one. */
void cb_twins_waking_late(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;

	if (k->guest.rules.phase != CB_PHASE_WAKING || ++w->silent >= SILENT_MAX) {
		cb_guest_kill(k, "no twin could take over");
		return;
	}
	cb_log(CB_LOG_WARNING, "twin %u was woken and does not answer", w->waking->number);
	fall_back(k);
}

static int resume(struct cb_kernel *k, const struct cb_twin *t)
{
	struct cb_leash_msg wake = { .op = CB_LEASH_WAKE, .number = t->number };
	CB_AUTO_BUF b = CB_BUF_INIT(2 * (size_t)CB_PAST_BYTES_MAX);
	int r = cb_buf_printf(
		&b, "{\"execution_count\":%lld,\"branch\":false,\"undone\":", (long long)k->execution.number + 1);

	if (r == 0)
		r = cb_past_sources(&k->twins.past, t->cell, &b);
	if (r == 0)
		r = cb_buf_append_str(&b, "}");
	if (r == 0)
		r = cb_fd_send(k->guest.leash, &wake, sizeof(wake), NULL, 0);
	if (r == 0)
		r = cb_guest_send_own(k, CB_WIRE_RESUME, CB_PHASE_WAKING, cb_buf_span(&b));
	return r < 0 ? r : cb_guest_tell_init(k, CB_INIT_GO_ON, 0);
}

void cb_twins_restored(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;
	struct cb_twin *t = w->waking;
	int r;

	cb_guest_last_words(k);
	(void)cb_broker_score(&k->guest.broker, CB_BROKER_EXPOSE, k->guest.jail, t->pid);
	r = cb_guest_become(k, &t->ends, t->pid);
	cb_comms_reset(k, &k->comms, &t->comms);
	for (int i = 0; i < CB_TWINS_MAX; i++) /* they have what is undone now */
		if (w->twin[i].number != 0 && w->twin[i].name[0] == '\0' && w->twin[i].cell > t->cell)
			cb_twins_drop(k, &w->twin[i]);
	if (r == 0 && t->files == CB_FILES_KEPT) {
		cb_loop_arm(&k->loop, w->deadline_timer, 0); /* that has a clock of its own */
		cb_snapshots_ask(k, CB_BROKER_RESTORE, t->snapshot);
	} else if (r == 0)
		r = resume(k, t);
	if (r < 0)
		cb_guest_kill(k, "the twin can't be spoken to");
}

void cb_twins_files(struct cb_kernel *k, enum cb_broker_op op, uint32_t number, const char *problem)
{
	struct cb_twins *w = &k->twins;
	struct cb_twin *t = op == CB_BROKER_SNAPSHOT ? cb_twins_find(w, number) : w->waking;

	if (t == NULL || t->snapshot != number || (op == CB_BROKER_RESTORE && k->guest.state != CB_GUEST_RESTORING))
		return; /* it has ended meanwhile */
	if (problem[0] != '\0')
		snprintf(t->files_problem, sizeof(t->files_problem), "%s", problem);
	if (op == CB_BROKER_SNAPSHOT) {
		t->files = CB_FILES_KEPT;
		cb_twins_check_ready(k);
		return;
	}
	cb_loop_arm(&k->loop, w->deadline_timer, cb_now_ns() + RESTORE_DEADLINE);
	if (resume(k, t) < 0)
		cb_guest_kill(k, "the twin can't be spoken to");
}

static void add_left_out(char *text, size_t size, int64_t n, const char *one, const char *many)
{
	size_t len = strlen(text);

	if (n > 0 && len < size)
		snprintf(text + len, size - len, "%s%lld %s", len > 0 ? ", " : "", (long long)n, n == 1 ? one : many);
}

static void word_it(struct cb_kernel *k, const struct cb_twin *t, int64_t first, int64_t last, size_t n)
{
	struct cb_twins *w = &k->twins;
	char cells[96] = "", left[128] = "", files[320] = "", cell[32] = "";

	if (n > 1)
		snprintf(cells, sizeof(cells), "; cells [%lld] to [%lld] are undone", (long long)first,
			 (long long)last);
	add_left_out(left, sizeof(left), t->left_out.threads, "thread", "threads");
	add_left_out(left, sizeof(left), t->left_out.sockets, "socket", "sockets");
	add_left_out(left, sizeof(left), t->left_out.children, "child process", "child processes");
	add_left_out(left, sizeof(left), t->left_out.shared_maps, "shared memory area", "shared memory areas");
	if (t->files == CB_FILES_STAY)
		snprintf(files, sizeof(files), "; files in the workspace stay as they are");
	else if (t->files_problem[0] != '\0')
		snprintf(files, sizeof(files), "; of the workspace's files did not come back: %s", t->files_problem);
	if (n > 0)
		snprintf(cell, sizeof(cell), "cell [%lld]", (long long)first);
	snprintf(w->outcome, sizeof(w->outcome), "all variables%s are as they were before %s%s%s%s%s",
		 t->files == CB_FILES_KEPT ? " and files" : "", n > 0 ? cell : "it", cells,
		 left[0] != '\0' ? "; what did not come back: " : "", left, files);
}

void cb_twins_resumed(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;
	struct cb_twin *t = w->waking;
	char name[CB_CHECKPOINT_NAME];
	int64_t first, last;
	size_t n;

	snprintf(name, sizeof(name), "%s", t->name);
	cb_loop_arm(&k->loop, w->deadline_timer, 0);
	n = note_undone(w, t, &first, &last);
	cb_past_undo(&w->past, t->cell);
	word_it(k, t, first, last, n);
	cb_log(CB_LOG_INFO, "restored in %.2f ms: %s", (double)(cb_now_ns() - w->stopped_ns) / 1e6, w->outcome);
	cb_audit_restored(k, w->restored_to, cb_buf_span(&w->undone),
			  k->checkpoints.rolling ? NULL : cb_failure_death_text(k));
	cb_twins_forget(k, t);
	k->guest.state = CB_GUEST_UP;
	cb_guest_set_idle(k);
	cb_memory_freed(k);
	if (w->possible)
		(void)cb_twins_make(k, name); /* the next failure may come at once */
	cb_execution_guest_restored(k);
}
