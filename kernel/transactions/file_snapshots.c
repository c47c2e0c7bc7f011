/* Files of an overlay workspace that go back with a twin.
 *
 * Trust domain: supervisor. The broker does the work (sandbox/changes/snapshot.c); it gets one end of a pipe and writes
 * what came of it. It serves one request about the layer at a time, so these and those of clients (layer.c) take turns.
 * An answer that does not come in time is a failure: the twin is used all the same, and what is said of it says so. But
 * while files are brought back nothing in the jail runs: what does not end when it is told to is ended with the jail.
 */
#include "file_snapshots.h"

#include <cellblock/fd.h>
#include <cellblock/json_scan.h>
#include <errno.h>

#include "python/ask_broker.h"
#include "kernel.h"

#define REPLY_MAX 65536
#define DEADLINE (30000 * 1000000LL) /* a layer may hold gigabytes */
#define STOP_DEADLINE (5000 * 1000000LL)
#define TOO_LONG "it took too long"

bool cb_file_snapshots_on(const struct cb_kernel *k)
{
	return k->workspace_mode == CB_WORKSPACE_OVERLAY && k->guest.level >= CB_LEVEL_NO_CGROUP;
}

bool cb_file_snapshots_busy(const struct cb_kernel *k)
{
	return k->snapshots.fd >= 0;
}

/* Why not all is as it should be, or ""; and how long a processor had to do with it. */
static void judge(const struct cb_buf *reply, char *ret_problem, size_t size, double *ret_cpu_s)
{
	struct cb_json_field f[] = { { .name = "status", .types = CB_JSON_STRING, .required = true },
				     { .name = "left", .types = CB_JSON_INTEGER },
				     { .name = "reason", .types = CB_JSON_STRING },
				     { .name = "evalue", .types = CB_JSON_STRING },
				     { .name = "cpu_s", .types = CB_JSON_NUMBER } };
	CB_AUTO_BUF text = CB_BUF_INIT(REPLY_MAX);
	struct cb_json_error e;
	int64_t left = 0;

	ret_problem[0] = '\0';
	if (cb_json_scan_object((const char *)reply->data, reply->len, f, 5, &e) < 0) {
		snprintf(ret_problem, size, "the process that builds jails gave no whole answer");
		return;
	}
	if (f[1].ret.data != NULL)
		(void)cb_json_int(f[1].ret, &left);
	if (f[4].ret.data != NULL)
		(void)cb_json_real(f[4].ret, ret_cpu_s);
	if (cb_json_string_is(f[0].ret, "ok") && left == 0)
		return;
	(void)cb_json_string_decode(f[2].ret.data != NULL ? f[2].ret : f[3].ret, &text);
	snprintf(ret_problem, size, "%.*s", (int)(text.len < 200 ? text.len : 200),
		 text.data != NULL ? (const char *)text.data : "");
	if (left > 1)
		snprintf(ret_problem + strlen(ret_problem), size - strlen(ret_problem), " and %lld more",
			 (long long)left - 1);
}

static void finish(struct cb_kernel *k, const char *problem)
{
	struct cb_file_snapshots *s = &k->snapshots;
	struct cb_snapshot_op op = s->waiting[0];

	cb_loop_remove(&k->loop, &s->slot);
	cb_loop_arm(&k->loop, s->timer, 0);
	cb_fd_close(&s->fd);
	cb_buf_clear(&s->reply);
	s->stopping = false;
	s->count--;
	memmove(s->waiting, s->waiting + 1, s->count * sizeof(s->waiting[0]));
	cb_layer_go_on(k); /* a client has waited for its turn */
	if (op.op != CB_BROKER_FORGET)
		cb_twins_files(k, op.op, op.number, problem);
	cb_file_snapshots_next(k);
}

static void on_reply(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct cb_file_snapshots *s = &k->snapshots;
	char problem[320];
	double cpu_s = 0;

	(void)revents;
	if (!cb_ask_broker_read(s->fd, &s->reply))
		return;
	judge(&s->reply, problem, sizeof(problem), &cpu_s);
	if (s->waiting[0].op == CB_BROKER_SNAPSHOT)
		cb_twin_cost_files(&k->twins.cost, cpu_s);
	finish(k, problem);
}

/* It is told to end, so that nothing is written any more when the jail goes on; if it does not, that does not. */
static void on_deadline(void *context)
{
	struct cb_kernel *k = context;
	struct cb_file_snapshots *s = &k->snapshots;

	if (!s->stopping && cb_broker_tell(&k->guest.broker, CB_BROKER_STOP) == 0) {
		s->stopping = true;
		cb_loop_arm(&k->loop, s->timer, cb_now_ns() + STOP_DEADLINE);
		return;
	}
	if (s->waiting[0].op == CB_BROKER_RESTORE)
		cb_guest_kill(k, "the workspace's files were not brought back in time");
	finish(k, TOO_LONG);
}

void cb_file_snapshots_next(struct cb_kernel *k)
{
	struct cb_file_snapshots *s = &k->snapshots;
	int r;

	if (s->count == 0 || s->fd >= 0 || cb_layer_at_broker(k))
		return;
	r = cb_ask_broker(k, s->waiting[0].op, s->waiting[0].number, on_reply, &s->fd, &s->slot);
	if (r < 0)
		finish(k, cb_err_name(r));
	else
		cb_loop_arm(&k->loop, s->timer, cb_now_ns() + DEADLINE);
}

void cb_file_snapshots_ask(struct cb_kernel *k, enum cb_broker_op op, uint32_t number)
{
	struct cb_file_snapshots *s = &k->snapshots;

	if (s->count == CB_FILE_SNAPSHOTS_WAITING_MAX) {
		if (op == CB_BROKER_RESTORE && s->waiting[0].op == op)
			cb_guest_kill(k, "files of the workspace are still being brought back");
		if (op != CB_BROKER_FORGET)
			cb_twins_files(k, op, number, "too much is asked of the workspace's layer");
		return;
	}
	s->waiting[s->count++] = (struct cb_snapshot_op){ op, number };
	cb_file_snapshots_next(k);
}

int cb_file_snapshots_init(struct cb_kernel *k)
{
	struct cb_file_snapshots *s = &k->snapshots;

	s->fd = s->slot = -1;
	s->reply = CB_BUF_INIT(REPLY_MAX);
	s->timer = cb_loop_add_timer(&k->loop, on_deadline, k);
	return s->timer < 0 ? -ENOSPC : 0;
}

void cb_file_snapshots_release(struct cb_kernel *k)
{
	struct cb_file_snapshots *s = &k->snapshots;

	cb_loop_remove(&k->loop, &s->slot);
	cb_fd_close(&s->fd);
	cb_buf_release(&s->reply);
	s->count = 0;
}
