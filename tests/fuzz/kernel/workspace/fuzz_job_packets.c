/* Fuzz target: what a helper in the jail says to the supervisor.
 *
 * The first byte chooses the kind of job. Then come packets: op, code, a (one byte each; 0xff stands for a huge one),
 * the length of the payload in two bytes, the payload. Whatever is said, nothing is kept beyond the limits, and the
 * reply is strict JSON.
 */
#include <cellblock/json_scan.h>

#include "requests/rooms.h"

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cb_policy policy = { .limit_message = 65536, .limit_output = 1000 };

static void check_reply(struct cb_job *job, const struct cb_job_packet *p, size_t len)
{
	CB_AUTO_BUF b = CB_BUF_INIT(cb_job_reply_room(job));
	struct cb_json j = cb_json_begin(&b);
	enum cb_json_type type = CB_JSON_NULL;

	cb_job_write_reply(job, &p->head, p->payload, len, &j);
	CHECK(cb_json_done(&j) == 0 && cb_json_scan(b.data, b.len, &type, NULL) == 0 && type == CB_JSON_OBJECT);
	CHECK(job->asked.code != CB_JOB_LIST || b.len < policy.limit_message + 65536);
}

static size_t next(const uint8_t *data, size_t size, struct cb_job_packet *p, size_t *ret_len)
{
	size_t len = size >= 5 ? (size_t)(data[3] | data[4] << 8) : 0;

	if (size < 5)
		return 0;
	if (len > size - 5)
		len = size - 5;
	p->head = (struct cb_job_frame){ .op = data[0],
					 .code = (int8_t)data[1],
					 .a = data[2] == 0xff ? UINT64_MAX : data[2],
					 .b = data[2] == 0xfe ? UINT64_MAX : data[2] };
	memcpy(p->payload, data + 5, len);
	*ret_len = len;
	return 5 + len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cb_job_packet p;
	static struct cb_kernel k;
	struct cb_request r = { 0 };
	enum cb_job_taken taken = CB_JOB_GOES_ON;
	size_t len = 0;

	if (size < 1 || size > (1u << 20))
		return 0;
	k.workspace.policy = &policy;
	k.workspace.guest = &k.guest;
	k.guest.usage = CB_USAGE_SOURCE_NONE;
	k.guest.python.output.parent = k.guest.parent; /* as cb_guest_init has it: a reply tells of its output */
	k.guest.python.output.nparents = CB_GUEST_PARENTS;
	struct cb_job *job = cb_job_new(&k.workspace, &r, (enum cb_job_kind)(CB_JOB_READ + data[0] % 7));

	CHECK(job != NULL);
	job->path = strdup("path");
	job->asked.b = policy.limit_message;
	job->whole = job->running = true;
	job->stop = data[0] >= 128 ? CB_JOB_STOP_TIME : CB_JOB_STOP_NONE;
	data++;
	size--;
	for (size_t n; taken == CB_JOB_GOES_ON && (n = next(data, size, &p, &len)) > 0; data += n, size -= n)
		taken = cb_job_take(job, &p, len);
	CHECK(job->out[0].len + job->out[1].len <= policy.limit_message);
	CHECK(job->asked.code != CB_JOB_RUN || job->out[0].len + job->out[1].len <= policy.limit_output);
	if (taken == CB_JOB_ANSWERED)
		check_reply(job, &p, len);
	cb_job_free(job);
	return 0;
}
