/* Twins: take-over.
 *
 * Trust domain: supervisor; see twins.c. A take-over that fails goes on to the next older twin, and in the end to the
 * death of the jail, which is the path that there was before. One that was woken and failed is not heard any more.
 */
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/states.h>
#include <inttypes.h>
#include <stdarg.h>

#include "branches.h"
#include "checkpoints.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "memory.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "records/audit_events.h"
#include "shells/debug.h"
#include "shells/execution.h"
#include "shells/failure.h"
#include "shells/lanes.h"
#include "twins.h"
#include "workspace/jobs.h"

#define MS 1000000LL
#define RESTORE_DEADLINE (15000 * MS) /* RESTORE to RESUMED */
#define SILENT_MAX 3		      /* who waits for a cell waits for each of them */
#define LOOK (300 * MS)		      /* at one in which threads run that Python does not know */
#define LOOK_ON (50 * MS)	      /* as often as this, while they have not had their turn on a busy machine */
#define LOOKS 40		      /* in which they worked: waiting for a processor does not count */
#define LOOK_MOST (15000 * MS)	      /* then it is believed */
#define COPY_MOST (15000 * MS)	      /* it is given up for an older one if it is not copied by then */
#define COPY_MOST_LAST (60000 * MS)   /* the same of the last one, with which all is lost */
#define SETTLE (10 * MS)	      /* how often it is looked whether memory has come back */
#define SETTLE_LOOKS 200
#define RESUME_ROOM (1 << 16)	      /* bytes of the wire's queue that a RESUME leaves free */
#define MOMENTS (10000 * MS)	      /* who dies in these, with nothing to do, is not what was kept */
#define LIVED (600000 * MS)	      /* who dies later than this does not die again and again */

#define BIT(state) (1u << (CB_TAKEOVER_##state))

static const struct cb_states states = {
	"a take-over",
	{ [CB_TAKEOVER_NONE] = { "none", BIT(NONE) | BIT(ENDING) },
	  [CB_TAKEOVER_ENDING] = { "ending", BIT(NONE) | BIT(SETTLING) | BIT(FILES) | BIT(HELD) | BIT(WAKING) },
	  [CB_TAKEOVER_SETTLING] = { "settling", BIT(NONE) | BIT(SETTLING) | BIT(FILES) | BIT(HELD) | BIT(WAKING) },
	  [CB_TAKEOVER_FILES] = { "files", BIT(NONE) | BIT(HELD) | BIT(WAKING) },
	  [CB_TAKEOVER_HELD] = { "held", BIT(NONE) | BIT(WAKING) },
	  [CB_TAKEOVER_WAKING] = { "waking", BIT(NONE) | BIT(COPYING) | BIT(LOOKING) },
	  [CB_TAKEOVER_COPYING] = { "copying", BIT(NONE) | BIT(LOOKING) },
	  [CB_TAKEOVER_LOOKING] = { "looking", BIT(NONE) } }
};

void cb_twins_go(struct cb_twins *w, enum cb_takeover to)
{
	CB_HOLDS((w->waking != NULL) == (to >= CB_TAKEOVER_ENDING && to <= CB_TAKEOVER_WAKING));
	CB_STATE_GO(&states, &w->takeover, to);
}

static void begin(struct cb_transactions *tx, struct cb_twin *t)
{
	tx->twins.waking = t;
	cb_twins_go(&tx->twins, CB_TAKEOVER_ENDING);
	tx->twins.settled = 0;
	tx->twins.stopped_ns = cb_now_ns();
	cb_log(CB_LOG_INFO, "twin %u takes over", t->number);
	if (cb_pid1_tell(&tx->guest->pid1, CB_INIT_RESTORE, (int)t->number, 0) < 0)
		cb_guest_kill(tx->guest, "pid 1 of the jail does not take messages");
	else
		cb_loop_arm(tx->loop, tx->twins.deadline_timer, cb_now_ns() + RESTORE_DEADLINE);
}

/* For those who ask what this take-over undoes; and with those before it of which nobody was told. */
static void note_undone(struct cb_transactions *tx, const struct cb_twin *t)
{
	struct cb_twins *w = &tx->twins;

	cb_buf_clear(&w->undone);
	if (cb_undo_log_after(&w->undo_log, t->cell, &t->live, &w->undone, &w->undid) < 0)
		cb_buf_clear(&w->undone);
	cb_buf_clear(&w->untold);
	if (cb_undo_log_untold(&w->undo_log, t->cell, &t->live, &w->untold, &w->untold_undid) < 0)
		cb_buf_clear(&w->untold);
	w->restored_to = t->count;
	w->untold_to = t->count < w->untold_before || tx->checkpoints.rolling ? t->count : w->untold_before;
}

static void passed_over(struct cb_twins *w, const char *why)
{
	w->passed_over++;
	w->passed_cell = w->waking != NULL ? w->waking->cell : w->woken.cell;
	snprintf(w->passed_why, sizeof(w->passed_why), "%s", why);
}

/* Who was given work since it was said to be back may have died of that. A command may run, and end, beside all shells.
 */
static bool died_with_nothing_to_do(const struct cb_transactions *tx)
{
	const struct cb_twins *w = &tx->twins;
	const struct cb_jobs *jobs = &tx->workspace->jobs;

	return w->confirmed_ns != 0 && jobs->head == NULL && jobs->command_ended_ns < w->confirmed_ns &&
	       !cb_debug_busy(tx->shells);
}

static bool died_of_itself(const struct cb_transactions *tx)
{
	return died_with_nothing_to_do(tx) && cb_now_ns() - tx->twins.confirmed_ns <= MOMENTS;
}

/* The next one may do the same, for ever. */
static void count_idle_death(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	if (!died_with_nothing_to_do(tx))
		return;
	w->idle_deaths = cb_now_ns() - w->confirmed_ns > LIVED ? 0 : w->idle_deaths + 1;
	if (w->idle_deaths != CB_IDLE_DEATHS)
		return;
	cb_execution_note(&tx->shells->execution,
			  "Python has ended %d times while nothing was asked of it. If it goes on so, its state is "
			  "woken only for a request",
			  CB_IDLE_DEATHS);
}

/* The woken one died with nothing to do, and of those that are kept the youngest are copies of it: the older one takes
 * over, if there is one. */
static struct cb_twin *pass_over_copies(struct cb_transactions *tx, struct cb_twin *t)
{
	struct cb_twins *w = &tx->twins;
	bool older = false;

	if (t == NULL || !died_of_itself(tx))
		return t;
	for (const struct cb_twin *each = w->twin; each < w->twin + CB_TWINS_MAX; each++)
		older |= cb_twin_is_ready(each) && each->use == CB_TWIN_KEPT && each->number < w->woken.number;
	if (!older)
		return t;
	while ((t = cb_twins_next(w)) != NULL && t->number > w->woken.number && t->name[0] == '\0')
		cb_twins_drop(tx, t);
	passed_over(w, cb_failure_death_text(tx->shells));
	return t;
}

/* `asked`: by a client, of a Python that lives. */
static bool replace(struct cb_transactions *tx, struct cb_twin *t, bool asked)
{
	struct cb_twins *w = &tx->twins;

	if (tx->guest->state != CB_GUEST_UP || tx->guest->shutting_down || t == NULL)
		return false;
	if (w->coming != NULL && w->coming != t) /* pid 1 spares who has registered already */
		cb_twins_drop(tx, w->coming);
	cb_loop_remove(tx->loop, &w->twin_control_slot);
	w->coming = NULL;
	w->asked = w->fallen = w->copy_kills = false;
	w->silent = 0;
	cb_loop_arm(tx->loop, w->idle_timer, 0);
	cb_checkpoints_gone(tx);
	cb_guest_restoring(tx->guest);
	if (asked)
		snprintf(tx->guest->cause, sizeof(tx->guest->cause), "the state goes back to an earlier one");
	cb_debug_guest_gone(tx->shells);
	cb_execution_stopped(tx->shells);
	cb_jobs_jail_died(tx->workspace, cb_failure_death_text(tx->shells)); /* helpers are ended with the guest */
	cb_twins_told(tx);
	w->untold_before = cb_twins_owe(tx) ? w->untold_to : INT64_MAX;
	note_undone(tx, t);
	cb_lanes_stopped(tx->shells); /* after what the dead one has used is known */
	begin(tx, t);
	return true;
}

bool cb_twins_take_over(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	bool done;

	if (tx->guest->state == CB_GUEST_ENDING)
		return false;
	if (w->takeover != CB_TAKEOVER_NONE) {
		cb_twins_failed(tx, tx->guest->verdict);
		return true;
	}
	w->passed_over = 0;
	count_idle_death(tx);
	done = replace(tx, pass_over_copies(tx, cb_twins_next(w)), false);
	w->confirmed_ns = 0;
	if (done)
		tx->checkpoints.rolling = false;
	return done;
}

bool cb_twins_go_to(struct cb_transactions *tx, struct cb_twin *t)
{
	tx->twins.passed_over = 0;
	return replace(tx, t, true);
}

/* It serves, and dies of being copied, or before it was believed: what there is of its copy is no better. */
static void give_up_woken(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	w->copy_kills |= w->asked;
	w->asked = false;
	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (t->number > w->before_copy)
			cb_twins_drop(tx, t);
	cb_guest_restoring(tx->guest);
	cb_debug_guest_gone(tx->shells);
	cb_jobs_jail_died(tx->workspace, w->passed_why); /* helpers have ended with it */
	cb_lanes_stopped(tx->shells);
}

/* The one that was to take over did not. */
static void fall_back(struct cb_transactions *tx, const char *why)
{
	struct cb_twins *w = &tx->twins;
	enum cb_takeover failed = w->takeover;
	struct cb_twin *t;

	passed_over(w, why);
	cb_checkpoint_lost(tx, w->waking != NULL ? w->waking->name : w->woken.name,
			   failed == CB_TAKEOVER_HELD ? "its state ended before it was woken"
						      : "its state did not work when it was woken");
	if (tx->checkpoints.rolling)
		snprintf(tx->guest->cause, sizeof(tx->guest->cause),
			 "the state that was asked for did not work when it was woken (%s)", w->passed_why);
	if (w->waking != NULL)
		cb_twins_forget(tx, w->waking);
	cb_twins_go(w, CB_TAKEOVER_NONE);
	if (failed >= CB_TAKEOVER_COPYING)
		give_up_woken(tx);
	if (failed >= CB_TAKEOVER_FILES) {
		cb_loop_remove(tx->loop, &tx->guest->link_slot); /* not heard any more */
		cb_guest_set_idle(tx->guest);
		tx->guest->verdict[0] = '\0'; /* it was that one's */
		w->fallen = true;
	}
	tx->checkpoints.rolling = false;
	t = tx->guest->shutting_down ? NULL : cb_twins_next(w);
	if (t != NULL)
		begin(tx, t);
	else
		cb_guest_kill(tx->guest, "no twin could take over");
}

bool cb_twins_exited(struct cb_transactions *tx, int status)
{
	struct cb_twins *w = &tx->twins;
	char why[160];

	cb_python_end_text(status, why, sizeof(why));
	if (tx->guest->state == CB_GUEST_ENDING) { /* before it was believed, and its jail with it: there is no other */
		if (w->takeover == CB_TAKEOVER_NONE)
			return false;
		passed_over(w, why);
		return true;
	}
	if (w->takeover < CB_TAKEOVER_HELD)
		return tx->guest->state == CB_GUEST_RESTORING && w->fallen; /* one that was given up */
	cb_twins_failed(tx, why);
	return true;
}

void cb_twins_woken_closed(struct cb_transactions *tx)
{
	cb_loop_arm(tx->loop, tx->twins.deadline_timer, cb_now_ns() + CB_LINK_CLOSED_NS);
}

void cb_twins_failed(struct cb_transactions *tx, const char *why)
{
	if (tx->twins.takeover != CB_TAKEOVER_NONE)
		fall_back(tx, why);
}

/* Without a word from pid 1 there is nobody to ask for another one. */
void cb_twins_waking_late(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	if (w->takeover != CB_TAKEOVER_WAKING || ++w->silent >= SILENT_MAX) {
		cb_guest_kill(tx->guest, "no twin could take over");
		return;
	}
	cb_log(CB_LOG_WARNING, "twin %u was woken and does not answer", w->waking->number);
	fall_back(tx, "Python did not answer");
}

static int put_resume(struct cb_transactions *tx, const struct cb_twin *t, bool sources, struct cb_buf *b)
{
	struct cb_json j = cb_json_begin(b);

	cb_json_put(&j, "execution_count", tx->shells->execution.number + 1, "branch", (bool)false);
	if (sources)
		cb_undo_log_sources(&tx->twins.undo_log, t->cell, t->count, &j);
	return cb_json_done(&j);
}

static int resume(struct cb_transactions *tx, const struct cb_twin *t)
{
	struct cb_twin_control_msg wake = { .op = CB_TWIN_CONTROL_WAKE, .number = t->number };
	size_t most = cb_guest_link_tx_max(tx->policy->limit_message) - RESUME_ROOM;
	CB_AUTO_BUF b = CB_BUF_INIT(2 * (size_t)CB_UNDO_LOG_BYTES_MAX);
	int r;

	if (t->count > tx->shells->execution.number) /* a branch that was adopted may have counted further */
		tx->shells->execution.number = t->count;
	r = put_resume(tx, t, true, &b);
	if (r == 0 && b.len > most) {
		cb_log(CB_LOG_WARNING, "In lacks the undone cells: %zu bytes are too many with this limits.message",
		       b.len);
		cb_buf_clear(&b);
		r = put_resume(tx, t, false, &b);
	}
	if (r == 0)
		r = cb_fd_send(tx->guest->python.twin_control, &wake, sizeof(wake), NULL, 0);
	if (r == 0)
		r = cb_guest_ask(tx->guest, CB_WIRE_RESUME, CB_PHASE_WAKING, cb_buf_span(&b));
	return r < 0 ? r : cb_pid1_tell(&tx->guest->pid1, CB_INIT_GO_ON, 0, 0);
}

static bool waits_for_a_request(const struct cb_transactions *tx)
{
	return tx->twins.idle_deaths >= CB_IDLE_DEATHS && tx->shells->execution.shell.current == NULL &&
	       !tx->guest->events->wanted(tx->guest->kernel);
}

/* It may have been killed while a request, memory or files were awaited: nobody tells of that before it is to go on.
 * There is no copy of it yet: until then the kernel's OOM killer spares it, as any twin. */
static void wake(struct cb_transactions *tx, const struct cb_twin *t)
{
	bool held = waits_for_a_request(tx);

	cb_twins_go(&tx->twins, held ? CB_TAKEOVER_HELD : CB_TAKEOVER_WAKING);
	cb_loop_arm(tx->loop, tx->twins.deadline_timer, held ? 0 : cb_now_ns() + RESTORE_DEADLINE);
	if (held && cb_branches_any(tx)) /* else all of the jail stands still until it is woken */
		(void)cb_pid1_tell(&tx->guest->pid1, CB_INIT_GO_ON, 0, 0);
	if (held)
		return;
	(void)cb_broker_score(&tx->guest->broker, CB_BROKER_OOM_FIRST, tx->guest->jail, t->pid);
	cb_guest_listen(tx->guest);
	if (resume(tx, t) < 0)
		cb_twins_failed(tx, "it had ended");
}

void cb_twins_asked(struct cb_transactions *tx)
{
	if (cb_twins_hold(tx) && !waits_for_a_request(tx))
		wake(tx, tx->twins.waking);
}

/* Page tables of one that was killed for memory count for some ms after its end, until the kernel has freed them: who
 * goes on at once would be killed for them. */
static bool memory_is_to_come(const struct cb_transactions *tx)
{
	uint64_t enough = CB_MEMORY_SHORT(tx->policy->limit_memory), used = 0, anonymous;

	return cb_failure_oom(tx->shells, &tx->shells->execution.shell.cell.usage_at_start.oom) != CB_OOM_NONE &&
	       cb_usage_memory(&tx->guest->usage, enough, &used, &anonymous) && used > enough;
}

void cb_twins_restored(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t = w->waking;
	int r;

	/* its jail is being ended meanwhile; or that was said already */
	if (tx->guest->state != CB_GUEST_RESTORING || w->takeover > CB_TAKEOVER_SETTLING)
		return;
	if (w->settled++ < SETTLE_LOOKS && memory_is_to_come(tx)) {
		cb_twins_go(w, CB_TAKEOVER_SETTLING);
		cb_loop_arm(tx->loop, w->deadline_timer, cb_now_ns() + SETTLE);
		return;
	}
	cb_guest_last_words(tx->guest);
	cb_checkpoints_gone(tx); /* also those that it asked for with these */
	r = cb_guest_become(tx->guest, &t->ends, t->pid);
	cb_comms_reset(tx->jupyter, &tx->guest->comms, &t->comms);
	if (r < 0) {
		cb_guest_kill(tx->guest, "the twin can't be spoken to");
	} else if (t->files == CB_FILES_KEPT) {
		cb_twins_go(w, CB_TAKEOVER_FILES); /* first, for the answer may come within the call */
		cb_loop_arm(tx->loop, w->deadline_timer, 0);
		cb_file_snapshots_ask(tx, CB_BROKER_RESTORE, t->snapshot);
	} else {
		wake(tx, t);
	}
}

void cb_twins_files(struct cb_transactions *tx, enum cb_broker_op op, uint32_t number, bool done, const char *problem)
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t = op == CB_BROKER_SNAPSHOT ? cb_twins_find(w, number) : w->waking;

	if (t == NULL || t->snapshot != number)
		return; /* it has ended meanwhile */
	if (op == CB_BROKER_RESTORE &&
	    (w->takeover != CB_TAKEOVER_FILES || tx->guest->state != CB_GUEST_RESTORING))
		return; /* or its jail; or another is to take over, and its files are those */
	if (problem[0] != '\0')
		snprintf(t->files_problem, sizeof(t->files_problem), "%s", problem);
	if (op == CB_BROKER_SNAPSHOT) {
		t->files = done ? CB_FILES_KEPT : CB_FILES_STAY;
		if (!done) /* what there is of it */
			cb_file_snapshots_ask(tx, CB_BROKER_FORGET, number);
		cb_twins_check_ready(tx);
		return;
	}
	t->files_lost = !done;
	wake(tx, t);
}

/* Behind what the text says already. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format, ...)
{
	size_t len = strlen(text);
	va_list ap;

	va_start(ap, format);
	vsnprintf(text + len, size - len, format, ap);
	va_end(ap);
}

static void add_left_out(char *text, size_t size, int64_t n, const char *one, const char *many)
{
	if (n > 0)
		add(text, size, "%s%lld %s", text[0] != '\0' ? ", " : "", (long long)n, n == 1 ? one : many);
}

/* What has no number is told as well, but for what failed just now itself. */
static void word_undone(struct cb_transactions *tx, int64_t restored_to, char *ret_cell, size_t cell_size,
			char *ret_cells, size_t size)
{
	const struct cb_undo_log_undone *u = &tx->twins.undid;
	const struct cb_request *r = tx->shells->execution.shell.current;
	uint64_t unnumbered = u->n.unnumbered, messages = u->n.messages;
	uint64_t whole = u->n.cells - u->partly - u->aside;

	if (r != NULL && cb_request_is_execute(r) && !tx->shells->execution.shell.cell.store && unnumbered > 0)
		unnumbered--;
	else if (r != NULL && cb_request_is_comm(r) && messages > 0)
		messages--;
	if (whole > 0 && u->first == 0)
		snprintf(ret_cell, cell_size, "the first cell after [%lld]", (long long)restored_to);
	else if (whole > 0)
		snprintf(ret_cell, cell_size, "cell [%lld]", (long long)u->first);
	if (whole > 1 && u->first == 0)
		snprintf(ret_cells, size, "; %" PRIu64 " cells up to [%lld] are undone", whole, (long long)u->last);
	else if (whole > 1)
		snprintf(ret_cells, size, "; cells [%lld] to [%lld] are undone", (long long)u->first,
			 (long long)u->last);
	if (u->partly == 1)
		add(ret_cells, size, "; what cell [%lld] of a subshell has done since then is undone",
		    (long long)u->partly_last);
	else if (u->partly > 1)
		add(ret_cells, size, "; what %" PRIu64 " cells of subshells have done since then is undone", u->partly);
	if (u->aside > 0)
		add(ret_cells, size, "; %" PRIu64 " earlier %s, which that state does not have, %s undone", u->aside,
		    u->aside == 1 ? "cell" : "cells", u->aside == 1 ? "is" : "are");
	if (unnumbered > 0)
		add(ret_cells, size, "; %" PRIu64 " %s without a number %s undone", unnumbered,
		    unnumbered == 1 ? "cell" : "cells", unnumbered == 1 ? "is" : "are");
	if (messages > 0)
		add(ret_cells, size, "; %" PRIu64 " %s of widgets %s undone", messages,
		    messages == 1 ? "message" : "messages", messages == 1 ? "is" : "are");
}

static void word_it(struct cb_transactions *tx, const struct cb_twin *t)
{
	struct cb_twins *w = &tx->twins;
	char cells[320] = "", left[128] = "", files[480] = "", cell[64] = "", passed[448] = "", native[224] = "";
	bool back = t->files == CB_FILES_KEPT && !t->files_lost, committed = back && w->commits > t->commits;

	word_undone(tx, w->restored_to, cell, sizeof(cell), cells, sizeof(cells));
	add_left_out(left, sizeof(left), t->left_out.threads, "thread", "threads");
	add_left_out(left, sizeof(left), t->left_out.sockets, "socket", "sockets");
	add_left_out(left, sizeof(left), t->left_out.children, "child process", "child processes");
	add_left_out(left, sizeof(left), t->left_out.shared_maps, "shared memory area", "shared memory areas");
	if (t->left_out.native > 0)
		snprintf(native, sizeof(native), "; %lld %s%s%s did not come back: restart the kernel if it hangs",
			 (long long)t->left_out.native, t->left_out.native == 1 ? "thread" : "threads",
			 t->left_out.native_of[0] != '\0' ? " of " : " that Python does not know",
			 t->left_out.native_of);
	if (t->files == CB_FILES_STAY)
		snprintf(files, sizeof(files), "; files in the workspace stay as they are%s%s%s",
			 t->files_problem[0] != '\0' ? " (" : "", t->files_problem,
			 t->files_problem[0] != '\0' ? ")" : "");
	else if (t->files_problem[0] != '\0')
		snprintf(files, sizeof(files), "; %s workspace's files did not come back: %s",
			 t->files_lost ? "the" : "of the", t->files_problem);
	if (back && w->written > t->written)
		add(files, sizeof(files), "; what requests for files and commands have changed since then is undone");
	if (committed)
		add(files, sizeof(files), "; files that were committed since then may stay as they are");
	if (w->passed_over > 0)
		snprintf(passed, sizeof(passed), "; %s state did not work when it was woken (%s)%s",
			 w->passed_cell > t->cell ? "a later" : "another", w->passed_why,
			 w->copy_kills && !w->possible
				 ? ", and this one " CB_TWIN_COPY_KILLS
				 : "");
	snprintf(w->outcome, sizeof(w->outcome), "all variables%s are as they were before %s%s%s%s%s%s%s",
		 back && !committed ? " and files" : "", cell[0] != '\0' ? cell : "it", cells, passed,
		 left[0] != '\0' ? "; what did not come back: " : "", left, native, files);
	add(w->outcome, sizeof(w->outcome), "%s", w->calls_text);
}

void cb_twins_write_undone(const struct cb_transactions *tx, struct cb_json *j)
{
	const struct cb_undo_log_undone *u = &tx->twins.untold_undid;

	cb_json_put(j, "restored_to", tx->twins.untold_to);
	if (tx->twins.untold.len > 0)
		cb_json_put(j, "undone", cb_buf_span(&tx->twins.untold));
	if (u->untold > 0)
		cb_json_put(j, "undone_before", u->untold);
	if (u->n.unnumbered > 0)
		cb_json_put(j, "undone_unnumbered", u->n.unnumbered);
	if (u->n.messages > 0)
		cb_json_put(j, "undone_messages", u->n.messages);
}

void cb_twins_write_undone_calls(const struct cb_transactions *tx, struct cb_json *j)
{
	if (tx->twins.calls.len > 0)
		cb_json_put(j, "undone_calls", cb_buf_span(&tx->twins.calls));
}

void cb_twins_write_state(const struct cb_transactions *tx, bool main, const char *state, struct cb_json *j)
{
	cb_json_put(j, "state", state);
	if (strcmp(state, "restored") == 0)
		cb_twins_write_undone(tx, j);
	if (main && strcmp(state, "kept") != 0)
		cb_twins_write_undone_calls(tx, j);
	if (main && tx->memory.given_up > 0)
		cb_json_put(j, "given_up", tx->memory.given_up);
}

const char *cb_twins_became(const struct cb_transactions *tx, bool restored)
{
	static char passed[320];

	if (restored)
		return tx->twins.outcome;
	snprintf(passed, sizeof(passed),
		 "all variables are lost, for what was kept did not work when it was woken (%s); the next cell runs "
		 "in a new Python",
		 tx->twins.passed_why);
	if (tx->twins.passed_over > 0)
		return passed;
	return tx->memory.none_left ? "all variables are lost, for the state before the cell was given up when memory "
				      "was short; the next cell runs in a new Python"
				    : NULL;
}

static void look_at(struct cb_transactions *tx)
{
	cb_twins_go(&tx->twins, CB_TAKEOVER_LOOKING);
	tx->twins.looks = LOOKS;
	tx->twins.look_used = 0;
	tx->twins.look_end = cb_now_ns() + LOOK_MOST;
	cb_loop_arm(tx->loop, tx->twins.deadline_timer, cb_now_ns() + LOOK);
}

/* It serves. A state that can't be copied again, or that dies of what a library does in it, is none that came back: so
 * nobody is told, and nothing begins, before there is a copy of it again. */
void cb_twins_resumed(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t = w->waking;

	w->before_copy = w->last_number;
	w->again = 0;
	w->unmade = false;
	w->woken = *t;
	w->woken.ends = CB_GUEST_ENDS_NONE;
	w->woken.comms = (struct cb_comms){ 0 };
	cb_loop_arm(tx->loop, w->deadline_timer, 0);
	cb_twins_forget(tx, t);
	cb_guest_go(tx->guest, CB_GUEST_UP);
	cb_guest_set_idle(tx->guest);
	cb_memory_freed(tx);
	cb_twins_room(tx); /* what a Python before it could not do may be possible: all it had started has ended */
	if (w->copy_kills && cb_twins_next(w) == NULL) /* the last one: it is looked at only */
		w->possible = false;
	if (w->possible && cb_twins_make(tx, w->woken.name))
		cb_twins_go(w, CB_TAKEOVER_COPYING);
	else
		look_at(tx);
}

/* NULL: there is none, and perhaps because it is dying. */
void cb_twins_copied(struct cb_transactions *tx, const struct cb_twin *copy)
{
	if (copy == NULL || copy->left_out.native + copy->left_out.native_back > 0)
		look_at(tx);
	else
		cb_twins_confirm(tx);
}

bool cb_twins_copied_late(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	if (w->takeover != CB_TAKEOVER_COPYING || tx->guest->state != CB_GUEST_UP) /* its jail is being ended */
		return false;
	return cb_twins_silent(tx) >= (cb_twins_next(w) != NULL ? COPY_MOST : COPY_MOST_LAST);
}

void cb_twins_looked_at(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	struct cb_usage_process now = { .own = w->look_used };
	int64_t at = cb_now_ns();

	if (tx->guest->state != CB_GUEST_UP) /* it is being ended, and what is told then is another's word */
		return;
	if (w->looks > 0 && at < w->look_end && cb_usage_threads_at_work(tx->guest->python.pid)) {
		(void)cb_usage_process(tx->guest->python.pid, &now);
		w->looks -= now.own > w->look_used;
		w->look_used = now.own;
		cb_loop_arm(tx->loop, w->deadline_timer, at + LOOK_ON);
	} else {
		cb_twins_confirm(tx);
	}
}

/* The woken one, in its turn: it is used up. */
static bool is_copied(const struct cb_twins *w)
{
	for (const struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (t->number > w->before_copy)
			return true;
	return false;
}

/* They were kept until it was known to work: what they have is undone now. */
static void drop_undone(struct cb_transactions *tx)
{
	struct cb_twin *t;

	while ((t = cb_twins_undone(&tx->twins, true)) != NULL)
		cb_twins_drop(tx, t);
}

void cb_twins_confirm(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	const struct cb_twin *t = &w->woken;
	bool told = false;

	if (tx->guest->state != CB_GUEST_UP) /* it is being ended */
		return;
	drop_undone(tx);
	if (cb_twins_named(tx, t->name) == NULL)
		cb_checkpoint_lost(tx, t->name, "its state took over, and could not be copied again");
	note_undone(tx, t);
	cb_twins_go(w, CB_TAKEOVER_NONE);
	w->confirmed_ns = cb_now_ns();
	cb_undo_log_undo(&w->undo_log, t->cell, &t->live);
	cb_twins_undo_calls(tx, (int64_t)t->cell);
	if (t->use == CB_TWIN_ADOPTED)
		cb_adopt_ran(tx, t->branch);
	for (struct cb_twin *each = w->twin; each < w->twin + CB_TWINS_MAX; each++)
		if (each->number > w->before_copy) { /* its copy, from when that was not undone yet */
			each->live = w->undo_log.live;
			each->cell = w->undo_log.last;
		}
	cb_twins_keep_so_many(tx);
	word_it(tx, t);
	w->passed_over = 0;
	if (w->possible && !is_copied(w))
		cb_twins_want_again(tx);
	w->copy_kills = w->copy_kills && !w->possible; /* else another one may be tried */
	cb_log(CB_LOG_INFO, "restored in %.2f ms: %s", (double)(w->confirmed_ns - w->stopped_ns) / 1e6, w->outcome);
	cb_audit_restored(tx->records, w->restored_to, cb_buf_span(&w->undone),
			  tx->checkpoints.rolling ? NULL : cb_failure_death_text(tx->shells),
			  tx->shells->execution.shell.current);
	if (tx->checkpoints.rolling) {
		cb_checkpoint_rolled_back(tx);
		told = true;
	}
	cb_execution_guest_restored(tx->shells, told);
}
