/* Fuzz target: content of cellblock_file_request, cellblock_run_request and cellblock_usage_request.
 *
 * The first byte chooses which. What is accepted must be sound: no NUL in a path, arguments that end where it is said,
 * lengths within limits.message, a limit of time that was only lowered. What is not says why.
 */
#include "requests/rooms.h"
#include "requests/requests.h"

#include <math.h>

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_run(const struct cb_job *job)
{
	size_t count = 0;

	CHECK(job->asked.a > 0 && job->asked.a <= job->input.len && job->asked.a <= CB_JOB_ARGUMENTS_MAX);
	CHECK(job->input.data[job->asked.a - 1] == '\0' && job->input.data[0] != '\0');
	for (size_t i = 0; i < job->asked.a; i++)
		count += job->input.data[i] == '\0';
	CHECK(job->asked.b >= 1 && job->asked.b <= count);
	CHECK(isfinite(job->timeout) && job->timeout > 0 && job->timeout <= 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum cb_request_kind kinds[] = { CB_REQUEST_FILE, CB_REQUEST_RUN, CB_REQUEST_JAIL_USAGE };
	struct cb_policy policy = { .limit_message = 65536, .timeout_cell = 10, .timeout_grace = 2 };
	static struct cb_kernel k;
	struct cb_job *job = NULL;
	struct cb_job_what what = { "" };

	if (size < 1)
		return 0;
	struct cb_request r = { .content = { (const char *)data + 1, size - 1 }, .metadata = CB_SPAN("{}") };

	r.kind = kinds[data[0] % 3];
	k.policy = k.workspace.policy = &policy;
	k.workspace.mode = data[0] >= 128 ? CB_WORKSPACE_TMPFS : CB_WORKSPACE_RW;
	if (cb_job_parse(&k, &r, &job, &what) < 0) {
		CHECK(what.text[0] != '\0' && memchr(what.text, 0, sizeof(what.text)) != NULL);
		return 0;
	}
	CHECK(job->path != NULL && strlen(job->path) < 4096);
	if (job->asked.code == CB_JOB_RUN)
		check_run(job);
	else
		CHECK(job->input.len == 0 && job->asked.b <= policy.limit_message && job->asked.a <= INT64_MAX);
	cb_job_free(job);
	return 0;
}
