/* Twins: making them.
 *
 * Trust domain: supervisor; see twins.c. One is ready when the guest has answered, pid 1 has it registered, it has said
 * so itself and its copy of the files is there, in any order; each step has a deadline. Whoever makes no twins three
 * times in a row is not asked again.
 */
#include <cellblock/fd.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include "branches.h"
#include "checkpoints.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "memory.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "records/audit_events.h"
#include "shells/note.h"
#include "shells/lanes.h"
#include "twins.h"

#define MS 1000000LL
#define ANSWER_DEADLINE (1000 * MS) /* CHECKPOINT; then what holds it up is let go. Large memory takes its time */
#define TELL_AFTER (3000 * MS)	    /* that this was in vain */
#define IMPATIENT (50 * MS)	    /* when a user has interrupted */
#define READY_DEADLINE (2000 * MS)  /* from there to REGISTERED and BORN */
#define HOOKS_DEADLINE (1000 * MS)  /* where a fork's hooks run, which may block: and four times what it took */
/* Where none do: a twin is copied, whose own fork's hooks have ended, or files are kept. A machine may be busy. */
#define PATIENT_DEADLINE (15000 * MS)
#define FAILURES_MAX 3
#define WHY_MAX (16u << 10) /* of what an error says is read */
#define NOT_TAKEN "Python does not take what it is sent"
#define AGAIN_AFTER (1000 * MS) /* a try stops the threads for a tenth of that */

static void not_asked_again(struct cb_transactions *tx, const char *why)
{
	struct cb_twins *w = &tx->twins;

	if (w->failures < FAILURES_MAX || !w->possible)
		return;
	w->possible = false;
	snprintf(w->given_up, sizeof(w->given_up),
		 "the state is not kept any more, for it could not be %d times in a row: %.150s", FAILURES_MAX, why);
	cb_execution_note(&tx->shells->execution, "%s", w->given_up);
	w->lack_told = true;
	cb_log(CB_LOG_WARNING, "no twins any more: %s, %d times in a row", why, FAILURES_MAX);
}

/* Whoever waits for it hears of it; NULL = it did not come. */
static void told(struct cb_transactions *tx, struct cb_twin *t, const char *why)
{
	if (cb_twins_confirming(&tx->twins))
		cb_twins_copied(tx, t);
	else
		cb_checkpoint_made(tx, t, why);
	cb_loop_mark(tx->loop);
}

/* Said once: that cells are without a net is not to be found out by falling. */
static void tell_lack(struct cb_transactions *tx, const char *why)
{
	struct cb_twins *w = &tx->twins;

	if (!w->lack_told)
		cb_execution_note(&tx->shells->execution,
				  "no copy of the state could be made (%.120s): a cell that ends Python would lose "
				  "more than itself",
				  why);
	w->lack_told = true;
}

/* What was to be a copy for another end says nothing of whether the state can be kept. That of a woken state is
 * cb_twins_confirm's to want again. */
static void count_failure(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	w->failures += w->coming_use == CB_TWIN_KEPT;
	if (w->coming_use != CB_TWIN_KEPT || w->coming_name[0] != '\0' || cb_twins_confirming(w))
		return;
	w->unmade = true;
	cb_twins_rest(tx);
}

void cb_twins_not_made(struct cb_transactions *tx, const char *why)
{
	struct cb_twins *w = &tx->twins;

	if (w->coming != NULL && w->coming->use == CB_TWIN_ADOPTED)
		cb_adopt_failed(tx, w->coming->branch);
	if (w->coming != NULL)
		cb_twins_drop(tx, w->coming);
	cb_loop_arm(tx->loop, w->deadline_timer, 0);
	cb_log(CB_LOG_INFO, "no twin was made: %s", why);
	count_failure(tx);
	not_asked_again(tx, why);
	told(tx, NULL, why);
}

int64_t cb_twins_silent(struct cb_transactions *tx)
{
	int64_t now = cb_now_ns();

	if (cb_iopub_congested(tx->jupyter)) /* its answer may be there, behind what it prints */
		tx->twins.silent_ns = now;
	return now - tx->twins.silent_ns;
}

/* One in C code can't be let go. Python is not ended for it: what it has answered would be undone. */
void cb_twins_let_go(struct cb_transactions *tx)
{
	static const char text[] =
		"[cellblock: this cell waits: Python is to keep its state and is held up, perhaps by a task of an "
		"earlier cell, or by a function that runs at each fork and does not end. An interrupt ends such a "
		"task. Interrupt twice to end Python by force; the variables then go back to the state that was kept "
		"last]\n";
	struct cb_twins *w = &tx->twins;
	const struct cb_request *r = tx->shells->execution.shell.current != NULL
					     ? tx->shells->execution.shell.current
					     : tx->shells->execution.shell.waiting.head;
	int64_t now = cb_now_ns(), silent = cb_twins_silent(tx);

	if (r == NULL)
		r = cb_lanes_waiting(tx->shells);
	cb_python_let_go(&tx->guest->python);
	cb_loop_arm(tx->loop, w->deadline_timer,
		    now + (w->interrupted_at != 0 && now - w->interrupted_at < ANSWER_DEADLINE ? IMPATIENT
											       : ANSWER_DEADLINE));
	if (r != NULL && !w->slow_told && silent >= TELL_AFTER) {
		cb_iopub_text(tx->jupyter, r->header, CB_WIRE_STDERR, text, sizeof(text) - 1);
		w->slow_told = true;
	}
}

bool cb_twins_interrupted(const struct cb_transactions *tx)
{
	return tx->twins.asked && tx->twins.interrupted_at != 0;
}

void cb_twins_interrupt(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	int64_t now = cb_now_ns();

	if (!w->asked)
		return;
	if (w->interrupted_at != 0 && now - w->interrupted_at >= CB_DOUBLE_CLICK) {
		cb_audit_interrupt(tx->records, "hard");
		w->confirmed_ns = 0; /* this is no fault of its state */
		cb_guest_stop(tx->guest, "interrupted while its state was to be kept");
		return;
	}
	if (w->interrupted_at == 0)
		w->interrupted_at = now;
	cb_twins_let_go(tx);
	cb_python_interrupt(&tx->guest->python); /* a task that runs between cells */
}

static void on_twin_control(void *context, short revents);

static int watch_twin_control(struct cb_transactions *tx, struct cb_twin *t)
{
	int slot = cb_loop_add(tx->loop, NULL, t->ends.twin_control, ZMQ_POLLIN, on_twin_control, tx);

	tx->twins.twin_control_slot = slot;
	return slot < 0 ? slot : 0;
}

/* A branch has no side wire. */
static size_t nfds(const struct cb_twin *t)
{
	return t->use == CB_TWIN_BRANCH ? CB_BIRTH_SIDE : CB_BIRTH_NFDS;
}

/* Without room for one more table it is a copy all the same: comms that were open are closed when it goes on. */
static int copy_comms(const struct cb_comms *from, struct cb_twin *t)
{
	int r = cb_comms_copy(from, &t->comms);

	if (r == CB_E_TOO_BIG)
		cb_log(CB_LOG_WARNING, "too many comms are open to keep them with one more copy of the state");
	return r == CB_E_TOO_BIG ? 0 : r;
}

/* Who leaves the descriptors that it was sent where they are keeps them in flight, of which each user has so many.
 * Not by SIOCOUTQ: this process's own filter refuses it. */
static bool takes(int control)
{
	uint32_t memory[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(memory);

	return getsockopt(control, SOL_SOCKET, SO_MEMINFO, memory, &size) == 0 && memory[SK_MEMINFO_WMEM_ALLOC] == 0;
}

static int send_birth(int control, enum cb_twin_control_op op, const struct cb_twin *t, const int *theirs)
{
	struct cb_twin_control_msg birth = { .op = op, .number = t->number };

	if (t->use != CB_TWIN_KEPT && !takes(control)) /* of those the failures are counted */
		return -EBUSY;
	return cb_fd_send(control, &birth, sizeof(birth), theirs, nfds(t));
}

static int give_birth(struct cb_transactions *tx, struct cb_twin *t, int theirs[CB_BIRTH_NFDS])
{
	int r = cb_pid1_tell(&tx->guest->pid1, CB_INIT_TWIN, (int)t->number, 0);

	t->room = t->use == CB_TWIN_BRANCH ? 0 : cb_memory_room(tx);
	CB_JSON_SMALL(content, "number", t->number, "room", t->room);
	if (r == 0)
		r = send_birth(tx->guest->python.twin_control, CB_TWIN_CONTROL_BIRTH, t, theirs);
	if (r == -EAGAIN || r == -ETOOMANYREFS)
		tx->twins.lack = r;
	if (r == 0)
		r = copy_comms(&tx->guest->comms, t);
	if (r == 0)
		r = watch_twin_control(tx, t);
	return r < 0 ? r : cb_guest_ask(tx->guest, CB_WIRE_CHECKPOINT, CB_PHASE_FORKING, cb_buf_span(&content));
}

/* A place, a number, and channels. */
static struct cb_twin *conceive(struct cb_transactions *tx, enum cb_twin_use use, int ret_theirs[CB_BIRTH_NFDS])
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t = cb_twins_find(w, 0);
	int r;

	w->lack = 0;
	if (t == NULL || cb_twins_busy(tx) || tx->guest->state != CB_GUEST_UP)
		return NULL;
	r = cb_guest_ends_make(&t->ends, ret_theirs);
	w->lack = r;
	if (r < 0) {
		cb_log(CB_LOG_INFO, "no twin was made: %s", strerror(-r));
		return NULL;
	}
	t->number = ++w->last_number;
	t->use = w->coming_use = use;
	if (use == CB_TWIN_BRANCH) {
		cb_fd_close(&t->ends.side);
		cb_fd_close(&ret_theirs[CB_BIRTH_SIDE]);
	}
	t->cell = w->undo_log.last;
	t->live = cb_undo_log_point(&w->undo_log);
	t->count = tx->shells->execution.number;
	t->created = cb_date_now();
	t->asked_ms = cb_now_ms();
	t->written = w->written;
	t->commits = w->commits;
	w->coming = t;
	return t;
}

static bool conceived(struct cb_transactions *tx, int theirs[CB_BIRTH_NFDS], int r, int64_t deadline)
{
	for (int i = 0; i < CB_BIRTH_NFDS; i++)
		cb_fd_close(&theirs[i]);
	if (r < 0) {
		cb_log(CB_LOG_INFO, "no twin was made: %s", cb_err_name(r));
		cb_twins_drop(tx, tx->twins.coming);
		return false;
	}
	cb_loop_arm(tx->loop, tx->twins.deadline_timer, cb_now_ns() + deadline);
	return true;
}

static struct cb_twin *make(struct cb_transactions *tx, const char *name, enum cb_twin_use use)
{
	struct cb_twins *w = &tx->twins;
	int theirs[CB_BIRTH_NFDS];
	struct cb_twin *t = conceive(tx, use, theirs);

	if (t == NULL)
		return NULL;
	snprintf(t->name, sizeof(t->name), "%s", name != NULL ? name : "");
	memcpy(w->coming_name, t->name, sizeof(w->coming_name));
	if (!conceived(tx, theirs, give_birth(tx, t, theirs), ANSWER_DEADLINE)) {
		if (!takes(tx->guest->python.twin_control)) {
			count_failure(tx);
			not_asked_again(tx, NOT_TAKEN);
		}
		return NULL;
	}
	w->asked = true;
	w->silent_ns = w->begun_ns = cb_now_ns();
	w->slow_told = false;
	w->interrupted_at = 0;
	return t;
}

bool cb_twins_make(struct cb_transactions *tx, const char *name)
{
	struct cb_twins *w = &tx->twins;
	struct cb_turns before = cb_usage_turns(&tx->guest->usage);
	struct cb_twin *t = make(tx, name, CB_TWIN_KEPT);

	if (t == NULL && w->lack < 0 && (name == NULL || *name == '\0')) /* a name's asker is answered */
		tell_lack(tx, strerror(-w->lack));
	if (t == NULL)
		return false;
	if (t->name[0] == '\0') {
		w->stale = w->after_cell = false;
		cb_twins_try(tx);
	}
	cb_twin_cost_begun(&w->cost, before);
	if (cb_file_snapshots_on(tx)) {
		t->files = CB_FILES_COMING;
		t->snapshot = t->number;
		cb_file_snapshots_ask(tx, CB_BROKER_SNAPSHOT, t->number);
	}
	return true;
}

bool cb_twins_breed(struct cb_transactions *tx, struct cb_twin *from, enum cb_twin_use use)
{
	int theirs[CB_BIRTH_NFDS], r;
	struct cb_twin *t = conceive(tx, use, theirs);

	if (t == NULL)
		return false;
	t->cell = from->cell;
	t->count = from->count;
	t->live = from->live;
	t->left_out = from->left_out;
	if (use == CB_TWIN_ROLLBACK) {
		t->files = from->files;
		t->snapshot = from->snapshot;
		t->written = from->written;
		t->commits = from->commits;
	}
	r = cb_pid1_tell(&tx->guest->pid1, CB_INIT_TWIN, (int)t->number, from->number);
	if (r == 0)
		r = send_birth(from->ends.twin_control, CB_TWIN_CONTROL_BREED, t, theirs);
	if (r == 0)
		r = copy_comms(&from->comms, t);
	if (r == 0)
		r = watch_twin_control(tx, t);
	return conceived(tx, theirs, r, PATIENT_DEADLINE);
}

bool cb_twins_adopt(struct cb_transactions *tx, struct cb_branch *b)
{
	int theirs[CB_BIRTH_NFDS], r;
	struct cb_twin *t = conceive(tx, CB_TWIN_ADOPTED, theirs);

	if (t == NULL)
		return false;
	t->branch = b->python.number;
	t->cell = b->cell;
	t->count = b->count;
	t->live = b->live;
	r = cb_pid1_tell(&tx->guest->pid1, CB_INIT_TWIN, (int)t->number, 0);
	if (r == 0)
		r = send_birth(b->python.twin_control, CB_TWIN_CONTROL_BIRTH, t, theirs);
	if (r == 0)
		r = cb_adopt_copy(tx, b, t->number);
	if (r == 0)
		r = copy_comms(&b->had, t);
	if (r == 0)
		r = copy_comms(&b->comms, t);
	if (r == 0)
		r = watch_twin_control(tx, t);
	return conceived(tx, theirs, r, PATIENT_DEADLINE);
}

bool cb_twins_branch(struct cb_transactions *tx, struct cb_twin *from)
{
	return from != NULL ? cb_twins_breed(tx, from, CB_TWIN_BRANCH) : make(tx, NULL, CB_TWIN_BRANCH) != NULL;
}

static bool is_by_age(const struct cb_twin *t)
{
	return cb_twin_is_ready(t) && t->use == CB_TWIN_KEPT && t->name[0] == '\0';
}

/* No cell with a number has ended between the two. What has files does not make way for what has none. */
static bool makes_way(const struct cb_twin *t, const struct cb_twin *as)
{
	return is_by_age(t) && is_by_age(as) && t->number < as->number && t->live.cells == as->live.cells &&
	       t->live.undone == as->live.undone && (t->files == CB_FILES_STAY || as->files != CB_FILES_STAY);
}

/* Who goes when there are too many: the oldest. But nobody can ask to go back to between two cells with a number: of
 * the states there (silent cells have run, or messages of widgets have come) all but the youngest go first. */
static struct cb_twin *next_to_go(struct cb_twins *w)
{
	struct cb_twin *best = NULL;

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		for (const struct cb_twin *as = w->twin; is_by_age(t) && as < w->twin + CB_TWINS_MAX; as++)
			if (makes_way(t, as) && (best == NULL || t->number < best->number))
				best = t;
	return best != NULL ? best : cb_twins_pick(w, true);
}

void cb_twins_keep_so_many(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t;

	while (cb_twins_count(w) > 1 + tx->policy->transactions_keep && (t = next_to_go(w)) != NULL)
		cb_twins_drop(tx, t);
}

/* One that differs only in files, or in what was done between cells, takes its place, so that the older states are as
 * many as before. What has files does not make way for what has none. */
static void drop_same(struct cb_transactions *tx, const struct cb_twin *as)
{
	struct cb_twins *w = &tx->twins;

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (makes_way(t, as) && t->cell == as->cell)
			cb_twins_drop(tx, t);
}

/* One that has come to be all the same says nothing of whether it took its birth, or only looked at it. */
static void count_untaken(struct cb_transactions *tx)
{
	if (takes(tx->guest->python.twin_control)) {
		tx->twins.failures = 0;
		return;
	}
	tx->twins.failures++;
	not_asked_again(tx, NOT_TAKEN);
}

void cb_twins_check_ready(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t = w->coming, *old;

	if (t == NULL || w->asked || !cb_twin_is_ready(t))
		return;
	if (t->use == CB_TWIN_ADOPTED && cb_adopt_is_asked(tx, t->branch))
		return; /* what it leaves out is to be said yet */
	if (t->files == CB_FILES_COMING) {
		cb_loop_arm(tx->loop, w->deadline_timer, cb_now_ns() + PATIENT_DEADLINE);
		return;
	}
	cb_loop_remove(tx->loop, &w->twin_control_slot);
	cb_loop_arm(tx->loop, w->deadline_timer, 0);
	w->coming = NULL;
	if (t->use == CB_TWIN_KEPT)
		count_untaken(tx);
	(void)cb_broker_score(&tx->guest->broker, t->use == CB_TWIN_BRANCH ? CB_BROKER_OOM_FIRST : CB_BROKER_OOM_LAST,
			      tx->guest->jail, t->pid);
	if (t->use == CB_TWIN_BRANCH) {
		if (cb_checkpoint_branched(tx, t))
			cb_twins_forget(tx, t);
		else
			cb_twins_drop(tx, t);
		cb_loop_mark(tx->loop);
		return;
	}
	if (t->use == CB_TWIN_ROLLBACK || t->use == CB_TWIN_ADOPTED) {
		if (!cb_twins_go_to(tx, t))
			cb_checkpoint_made(tx, NULL, "the guest has ended");
		return;
	}
	cb_twin_cost_made(&w->cost, cb_usage_turns(&tx->guest->usage), w->duration_s);
	while (t->name[0] != '\0' && (old = cb_twins_other_named(w, t)) != NULL)
		cb_twins_drop(tx, old);
	if (!cb_twins_confirming(w)) { /* else an older one may be needed yet */
		if (t->name[0] == '\0')
			drop_same(tx, t);
		cb_twins_keep_so_many(tx);
	}
	if (t->name[0] == '\0')
		cb_twins_rest(tx);
	cb_twins_forget_past(tx);
	told(tx, t, NULL);
}

void cb_left_out_take(struct cb_left_out *l, struct cb_span json)
{
	struct cb_json_field f[] = {
		{ .name = "threads", .types = CB_JSON_INTEGER },  { .name = "sockets", .types = CB_JSON_INTEGER },
		{ .name = "children", .types = CB_JSON_INTEGER }, { .name = "shared_maps", .types = CB_JSON_INTEGER },
		{ .name = "native", .types = CB_JSON_INTEGER },	  { .name = "native_back", .types = CB_JSON_INTEGER },
		{ .name = "forked", .types = CB_JSON_INTEGER },	  { .name = "native_of", .types = CB_JSON_STRING }
	};
	int64_t *to[] = { &l->threads, &l->sockets,	&l->children, &l->shared_maps,
			  &l->native,  &l->native_back, &l->forked };
	const size_t numbers = CB_COUNT(to);
	CB_AUTO_BUF name = CB_BUF_INIT(sizeof(l->native_of) - 1);

	if (json.data == NULL || cb_json_scan_object(json.data, json.len, f, numbers + 1, NULL) < 0)
		return;
	for (size_t i = 0; i < numbers; i++)
		if (f[i].ret.data != NULL)
			(void)cb_json_int(f[i].ret, to[i]);
	if (f[numbers].ret.data == NULL || cb_json_string_decode(f[numbers].ret, &name) < 0)
		return;
	for (size_t i = 0; i < name.len; i++)
		l->native_of[i] = name.data[i] >= ' ' && name.data[i] < 0x7f ? (char)name.data[i] : '?';
	l->native_of[name.len] = '\0';
}

/* Appends what a raw JSON string, or none, says; so many bytes of it. What is longer than WHY_MAX is left out. */
static void append_said(struct cb_buf *b, struct cb_span raw, size_t most)
{
	size_t before = b->len;

	if (raw.data == NULL || cb_json_string_decode(raw, b) < 0)
		b->len = before;
	if (b->len - before > most)
		b->len = before + cb_utf8_complete_prefix((const char *)b->data + before, most);
}

void cb_twins_why_not(const struct cb_guest_content *c, char *ret_why, size_t size)
{
	CB_AUTO_BUF b = CB_BUF_INIT(WHY_MAX);

	append_said(&b, c->ename, 80);
	(void)cb_buf_append(&b, ": ", 2);
	append_said(&b, c->evalue, 160);
	snprintf(ret_why, size, "%.*s", (int)b.len, (const char *)b.data);
}

/* They may stop the next time. */
static void threads_went_on(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	w->failures = 0;
	w->again_ns = cb_now_ns() + AGAIN_AFTER;
	cb_twins_want_again(tx);
}

void cb_twins_answered(struct cb_transactions *tx, const struct cb_guest_content *c)
{
	struct cb_twins *w = &tx->twins;
	char why[256] = "it ended at its birth";

	cb_guest_set_idle(tx->guest);
	if (w->asked) /* else that clock is a take-over's */
		cb_loop_arm(tx->loop, w->deadline_timer, 0);
	w->asked = false;
	w->duration_s = (double)(cb_now_ns() - w->begun_ns) / 1e9;
	if (!cb_json_string_is(c->status, "ok"))
		cb_twins_why_not(c, why, sizeof(why));
	if (w->coming == NULL) { /* it has ended already */
		not_asked_again(tx, why);
		told(tx, NULL, why);
	} else if (!cb_json_string_is(c->status, "ok")) {
		if (c->ename.data != NULL && cb_json_string_is(c->ename, "TimeoutError") &&
		    takes(tx->guest->python.twin_control)) /* else it has not even tried */
			threads_went_on(tx);
		cb_twins_not_made(tx, why);
	} else {
		cb_left_out_take(&w->coming->left_out, c->left_out);
		cb_loop_arm(tx->loop, w->deadline_timer,
			    cb_now_ns() + (w->coming->left_out.forked != 0
						   ? HOOKS_DEADLINE + 4 * (int64_t)(w->duration_s * 1e9)
						   : READY_DEADLINE));
		cb_twins_check_ready(tx);
	}
}

void cb_twins_lost_at_birth(struct cb_transactions *tx, const char *why)
{
	if (!tx->twins.asked) {
		cb_twins_not_made(tx, why);
		return;
	}
	cb_log(CB_LOG_INFO, "no twin was made: %s", why);
	cb_twins_drop(tx, tx->twins.coming);
	count_failure(tx);
}

/* The twin's only word before it is woken; its pid is the kernel's word. Descriptors find no room and are closed. */
static void on_twin_control(void *context, short revents)
{
	struct cb_transactions *tx = context;
	struct cb_twin *t = tx->twins.coming;
	struct cb_twin_control_msg message = { 0 };
	pid_t sender = 0;
	ssize_t n = cb_fd_recv_from(t->ends.twin_control, &message, sizeof(message), &sender, NULL, MSG_DONTWAIT);

	(void)revents;
	if (n == -EAGAIN)
		return;
	if (n != (ssize_t)sizeof(message) || message.op != CB_TWIN_CONTROL_BORN || message.number != t->number ||
	    t->born || sender <= 1) {
		cb_twins_lost_at_birth(tx, n <= 0 ? "the twin ended at its birth" : "the twin said what it may not");
		return;
	}
	t->born = true;
	t->pid = sender;
	cb_twins_check_ready(tx);
}
