/* What is said on behalf of requests: text, displays, comm messages.
 *
 * Trust domain: supervisor; all of it is hostile, and goes out under the parent that the supervisor knows for its id,
 * within that one's limit of output. Frames that arrive here are permitted and strict JSON; their contents are
 * forwarded as they are. What comes on fds 1 and 2 has no id and goes under the latest cell.
 */
#include "output.h"

#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "jupyter/iopub.h"
#include "policy/policy.h"
#include "records/audit_events.h"

#define PIPE_CHUNK 65536

void cb_output_init(struct cb_output *s, struct cb_guest_parent *parent, size_t n, struct cb_comms *comms,
		    struct cb_jupyter *jupyter, struct cb_records *records, const struct cb_policy *policy)
{
	*s = (struct cb_output){ .parent = parent,
				 .nparents = n,
				 .out = { -1, -1 },
				 .comms = comms,
				 .jupyter = jupyter,
				 .records = records,
				 .policy = policy };
}

struct cb_guest_parent *cb_output_parent(const struct cb_output *s, uint64_t id)
{
	struct cb_guest_parent *p = &s->parent[id % s->nparents];

	return id != 0 && p->id == id ? p : &s->parent[s->background % s->nparents];
}

void cb_output_remember(struct cb_output *s, uint64_t id, struct cb_header *header)
{
	struct cb_guest_parent *p = &s->parent[id % s->nparents];

	cb_header_ref(header);
	cb_header_unref(p->header);
	*p = (struct cb_guest_parent){ .id = id, .header = header };
}

void cb_output_forget(struct cb_output *s)
{
	for (size_t i = 0; i < s->nparents; i++) {
		cb_header_unref(s->parent[i].header);
		s->parent[i] = (struct cb_guest_parent){ 0 };
	}
}

bool cb_output_count(const struct cb_output *s, struct cb_guest_parent *p, size_t len)
{
	uint64_t limit = s->policy->limit_output;

	p->output_bytes += len;
	if (limit == 0 || p->output_bytes <= limit)
		return true;
	if (!p->output_cut) {
		char text[160];
		int n = snprintf(text, sizeof(text),
				 "\n[cellblock: limits.output = %llu bytes reached; the rest of this cell's output is "
				 "dropped]\n",
				 (unsigned long long)limit);

		p->output_cut = true;
		cb_audit_limit(s->records, "limits.output");
		cb_iopub_text(s->jupyter, p->header, CB_WIRE_STDERR, text, (size_t)n);
	}
	return false;
}

/* The same for a whole message. */
static bool count_frame(const struct cb_output *s, const struct cb_frame *f)
{
	return cb_output_count(s, cb_output_parent(s, f->header.request),
			       (size_t)f->header.content_len + f->header.metadata_len + f->header.buffers_len);
}

/* ---- text ---- */

static void say(struct cb_output *s, uint64_t id, unsigned stream, const char *text, size_t len)
{
	struct cb_guest_parent *p = cb_output_parent(s, id);
	uint64_t limit = s->policy->limit_output, left = limit > p->output_bytes ? limit - p->output_bytes : 0;
	size_t fits = limit == 0 || len <= left ? len : cb_utf8_complete_prefix(text, left);

	if (fits > 0)
		cb_iopub_text(s->jupyter, p->header, stream, text, fits);
	(void)cb_output_count(s, p, len); /* its notice comes after what still fits */
}

static void keep_last(struct cb_output *s, const char *text, size_t len)
{
	size_t have = strlen(s->last), more = len < CB_OUTPUT_LAST ? len : CB_OUTPUT_LAST;
	size_t left = have + more <= CB_OUTPUT_LAST ? have : CB_OUTPUT_LAST - more;

	memmove(s->last, s->last + have - left, left);
	memcpy(s->last + left, text + len - more, more);
	s->last[left + more] = '\0';
}

static int read_output(struct cb_output *s, int i, size_t most)
{
	static char chunk[PIPE_CHUNK + 4];
	size_t have = s->tail_len[i];

	memcpy(chunk, s->tail[i], have);
	ssize_t n = read(s->out[i], chunk + have, most < PIPE_CHUNK ? most : PIPE_CHUNK);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return CB_E_CLOSED;
	have += (size_t)n;
	size_t whole = cb_utf8_complete_prefix(chunk, have);

	if (have - whole > 3) /* no sequence is longer: what is left is no UTF-8 and gets repaired as such */
		whole = have;
	s->tail_len[i] = have - whole;
	memcpy(s->tail[i], chunk + whole, s->tail_len[i]);
	if (whole > 0) {
		keep_last(s, chunk, whole);
		say(s, s->background, i == 0 ? CB_WIRE_STDOUT : CB_WIRE_STDERR, chunk, whole);
	}
	return 1;
}

int cb_output_read(struct cb_output *s, int i)
{
	return read_output(s, i, PIPE_CHUNK);
}

void cb_output_drain(struct cb_output *s)
{
	for (int i = 0; i < 2; i++) {
		int waiting = 0;

		/* only what is there now: a child that writes for ever must not hold up the reply */
		if (s->out[i] < 0 || ioctl(s->out[i], FIONREAD, &waiting) < 0)
			continue;
		while (waiting > 0 && read_output(s, i, (size_t)waiting) > 0)
			waiting -= PIPE_CHUNK;
	}
}

/* ---- frames ---- */

/* Forwards content, metadata and buffers under the request's parent, behind what child processes have written to the
 * pipes by now: os.system's text comes before its result. */
static void forward(struct cb_output *s, const char *type, enum cb_weight weight, struct cb_frame *f,
		    struct cb_span content)
{
	cb_output_drain(s);
	struct cb_guest_parent *p = cb_output_parent(s, f->header.request);
	struct cb_outgoing out = { .type = type,
				   .parent = cb_header_span(p->header),
				   .metadata = f->metadata,
				   .metadata_body = f->body,
				   .content = content,
				   .content_body = f->body,
				   .buffers = f->buffer,
				   .nbuffers = f->header.buffer_count,
				   .buffers_body = f->body };

	cb_iopub_publish(s->jupyter, type, weight, &out);
}

struct cb_span cb_frame_with_count(struct cb_frame *f, int64_t n)
{
	CB_JSON_SMALL(counted, "execution_count", (long)(int)n); /* no more digits than there is room for */
	char *brace = memchr(f->content, '{', f->header.content_len);
	char *start = brace + 1 - counted.len;

	memcpy(start, counted.data, counted.len);
	*brace = ','; /* for the end of that object */
	return (struct cb_span){ start, (size_t)(f->content + f->header.content_len - start) };
}

static bool publish(struct cb_output *s, const char *type, struct cb_frame *f)
{
	if (!count_frame(s, f))
		return false;
	forward(s, type, CB_WEIGHT_DATA, f, (struct cb_span){ f->content, f->header.content_len });
	return true;
}

/* Of a comm that clients know it passes in any case: there are no more of them than were opened. */
static void comm_closed(struct cb_output *s, struct cb_frame *f, const struct cb_guest_content *c)
{
	bool counted = count_frame(s, f);

	if (cb_comms_closed(s->comms, c->comm_id) || counted)
		forward(s, "comm_close", CB_WEIGHT_DATA, f, (struct cb_span){ f->content, f->header.content_len });
}

bool cb_output_frame(struct cb_output *s, struct cb_frame *f, const struct cb_guest_content *c)
{
	switch (f->header.type) {
	case CB_WIRE_STREAM:
		say(s, f->header.request, f->header.flags, f->content, f->header.content_len);
		return true;
	case CB_WIRE_DISPLAY_DATA:
		publish(s, "display_data", f);
		return true;
	case CB_WIRE_UPDATE_DISPLAY_DATA:
		publish(s, "update_display_data", f);
		return true;
	case CB_WIRE_CLEAR_OUTPUT:
		publish(s, "clear_output", f);
		return true;
	case CB_WIRE_UP_COMM_OPEN:
		/* clients never hear of the others: they are not listed either */
		if (publish(s, "comm_open", f) && cb_comms_opened(s->comms, c->comm_id, c->target_name) < 0 &&
		    !s->comms->full) {
			s->comms->full = true;
			cb_log(CB_LOG_WARNING, "too many comms are open to list one more");
		}
		return true;
	case CB_WIRE_UP_COMM_MSG:
		publish(s, "comm_msg", f);
		return true;
	case CB_WIRE_UP_COMM_CLOSE:
		comm_closed(s, f, c);
		return true;
	default:
		return false;
	}
}

/* A big one may be given up when nobody reads: without a limit they have no bound, and a cell's reply has its error. */
static enum cb_weight weight_of(const struct cb_frame *f)
{
	return f->header.content_len <= CB_WIRE_SMALL ? CB_WEIGHT_KEEP : CB_WEIGHT_DATA;
}

/* A cell's first small result is no flood: it passes also when the cell's text has used its limit up. */
void cb_output_result(struct cb_output *s, struct cb_frame *f, int64_t number)
{
	struct cb_guest_parent *p = cb_output_parent(s, f->header.request);
	bool first = !p->has_result && f->header.content_len <= CB_WIRE_SMALL;

	p->has_result = true;
	if (count_frame(s, f) || first)
		forward(s, "execute_result", weight_of(f), f, cb_frame_with_count(f, number));
}

void cb_output_error(struct cb_output *s, struct cb_frame *f, bool keep)
{
	if (!count_frame(s, f) && !keep)
		return;
	forward(s, "error", weight_of(f), f, (struct cb_span){ f->content, f->header.content_len });
}
