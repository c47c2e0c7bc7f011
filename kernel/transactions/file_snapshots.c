/* Files of an overlay workspace that go back with a twin.
 *
 * Trust domain: supervisor. The broker does the work (sandbox/changes/snapshot.c), and serves one request about the
 * layer at a time: these and those of clients (overlay_changes.c) take turns (python/broker_queue.c). An answer that
 * does not come in time is a failure: the twin is used all the same, and what is said of it says so. But while files
 * are brought back nothing in the jail runs: what does not end when it is told to is ended with the jail.
 */
#include <cellblock/json_scan.h>
#include <errno.h>

#include "python/broker_queue.h"
#include "python/guest.h"
#include "twins.h"
#include "workspace/workspace.h"

#define REPLY_MAX 65536
#define DEADLINE (30000 * 1000000LL) /* a layer may hold gigabytes */

bool cb_file_snapshots_on(const struct cb_transactions *tx)
{
	return tx->workspace->mode == CB_WORKSPACE_OVERLAY && tx->guest->level >= CB_LEVEL_NO_CGROUP;
}

/* Whether it was done, though perhaps not all; why not all is as it should be, or ""; and how long a processor had to
 * do with it. */
static bool judge(const struct cb_buf *reply, char *ret_problem, size_t size, double *ret_cpu_s)
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
		return false;
	}
	if (f[1].ret.data != NULL)
		(void)cb_json_int(f[1].ret, &left);
	if (f[4].ret.data != NULL)
		(void)cb_json_real(f[4].ret, ret_cpu_s);
	if (cb_json_string_is(f[0].ret, "ok") && left == 0)
		return true;
	(void)cb_json_string_decode(f[2].ret.data != NULL ? f[2].ret : f[3].ret, &text);
	snprintf(ret_problem, size, "%.*s", (int)(text.len < 200 ? text.len : 200),
		 text.data != NULL ? (const char *)text.data : "");
	if (left > 1)
		snprintf(ret_problem + strlen(ret_problem), size - strlen(ret_problem), " and %lld more",
			 (long long)left - 1);
	return cb_json_string_is(f[0].ret, "ok");
}

static void on_answer(const struct cb_broker_ask *ask, struct cb_buf *answer, int r)
{
	struct cb_transactions *tx = ask->context;
	char problem[320];
	bool done = false;
	double cpu_s = 0;

	if (r == 0)
		done = judge(answer, problem, sizeof(problem), &cpu_s);
	else
		snprintf(problem, sizeof(problem), "%s",
			 r == -ETIMEDOUT ? "it took too long"
			 : r == -ENOBUFS ? "too much is asked of the workspace's layer"
					 : cb_err_name(r));
	if (r == 0 && ask->op == CB_BROKER_SNAPSHOT)
		cb_twin_cost_files(&tx->twins.cost, cpu_s);
	if (r == -ETIMEDOUT && ask->op == CB_BROKER_RESTORE)
		cb_guest_kill(tx->guest, "the workspace's files were not brought back in time");
	if (r == -ENOBUFS && ask->op == CB_BROKER_RESTORE && cb_broker_queue_begun(tx->queue, ask->op))
		cb_guest_kill(tx->guest, "files of the workspace are still being brought back");
	if (ask->op != CB_BROKER_FORGET)
		cb_twins_files(tx, ask->op, ask->number, done, problem);
}

void cb_file_snapshots_ask(struct cb_transactions *tx, enum cb_broker_op op, uint32_t number)
{
	const struct cb_broker_ask ask = {
		.op = op, .number = number, .patience_ns = DEADLINE, .on_answer = on_answer, .context = tx
	};

	cb_broker_queue_ask(tx->queue, &ask);
}
