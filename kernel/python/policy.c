/* The permission table of the wire.
 *
 * Trust domain: supervisor; stands between the guest's bytes and everybody else: python.c and side.c ask it about each
 * frame before any other code sees it. Invariant: a message that is not in the contract, or not in this phase, or whose
 * content a notebook server or browser could choke on, goes no further. What follows (the Python is killed, a WireError
 * is reported) is up to the Python's owner.
 */
#include "policy.h"

#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/states.h>

static const struct {
	uint32_t type, phases, cap;
	enum cb_wire_id id;
} rule[] = {
#define CB_X(name, number, phases, id, cap) { number, phases, cap, id },
	CB_WIRE_UP_MESSAGES(CB_X)
#undef CB_X
};

/* A phase's place in the table. */
#define AT(phase) __builtin_ctz(CB_PHASE_##phase)
#define PENDING                                                                                                        \
	(CB_PHASE_EXECUTING | CB_PHASE_INPUT | CB_PHASE_ASKING | CB_PHASE_COMM | CB_PHASE_FORKING | CB_PHASE_WAKING)
/* It ends; or it has died with that pending, and another is woken in its place. */
#define OVER (CB_PHASE_IDLE | CB_PHASE_STARTING | CB_PHASE_WAKING)

/* One request is pending at a time: none follows another without idle between. */
static const struct cb_states phases = { "the wire's phase",
					 { [AT(STARTING)] = { "starting", OVER },
					   [AT(IDLE)] = { "idle", OVER | (PENDING & ~CB_PHASE_INPUT) },
					   [AT(EXECUTING)] = { "executing", OVER | CB_PHASE_INPUT },
					   [AT(INPUT)] = { "input", OVER | CB_PHASE_EXECUTING },
					   [AT(ASKING)] = { "asking", OVER },
					   [AT(COMM)] = { "comm", OVER },
					   [AT(FORKING)] = { "forking", OVER },
					   [AT(WAKING)] = { "waking", OVER } } };

void cb_guest_rules_go(struct cb_guest_rules *rules, enum cb_wire_phase to, uint64_t current)
{
	CB_HOLDS(((to & PENDING) != 0) == (current != 0));
	cb_states_check(&phases, (unsigned)__builtin_ctz(rules->phase), (unsigned)__builtin_ctz(to));
	rules->phase = to;
	rules->current = current;
}

void cb_guest_rules_input(struct cb_guest_rules *rules, bool asks)
{
	cb_guest_rules_go(rules, asks ? CB_PHASE_INPUT : CB_PHASE_EXECUTING, rules->current);
}

/* What the request is to the guest: the pending one, or one beside it; 0 = neither. */
static unsigned phase_of(const struct cb_guest_rules *g, uint64_t request)
{
	if (request != 0 && request == g->current)
		return g->phase;
	for (size_t i = 0; i < CB_LANES && request != 0; i++)
		if (g->beside[i].id == request)
			return g->phase & CB_PHASE_UP ? g->beside[i].phase : 0;
	return 0;
}

static uint64_t body_size(const struct cb_wire_header *h)
{
	return (uint64_t)h->content_len + h->metadata_len + h->buffers_len;
}

int cb_guest_policy_header(const struct cb_guest_rules *g, const struct cb_wire_header *h, const char **ret_reason)
{
	size_t i = 0, n = CB_COUNT(rule);

	while (i < n && rule[i].type != h->type)
		i++;
	*ret_reason = "unknown message type";
	if (i == n)
		return CB_E_UNKNOWN;
	unsigned phase = rule[i].id == CB_ID_CURRENT ? phase_of(g, h->request) : g->phase;

	*ret_reason = "request id that this message may not carry";
	if (phase == 0)
		return CB_E_DENIED;
	*ret_reason = "message not allowed in this phase";
	if (!(rule[i].phases & phase))
		return CB_E_DENIED;
	*ret_reason = "request id that this message may not carry";
	switch (rule[i].id) {
	case CB_ID_NONE:
		if (h->request != 0)
			return CB_E_DENIED;
		break;
	case CB_ID_ANY:
		if (h->request != 0 && (h->request < g->first_id || h->request > g->last_id))
			return CB_E_DENIED;
		break;
	case CB_ID_CURRENT: /* looked at above */
		break;
	}
	*ret_reason = "message over its size limit";
	if (body_size(h) > rule[i].cap || body_size(h) > g->max_message || h->buffer_count > CB_WIRE_MAX_BUFFERS)
		return CB_E_TOO_BIG;
	*ret_reason = "flags or buffers that this message has no use for";
	if (h->type == CB_WIRE_STREAM ? h->flags != CB_WIRE_STDOUT && h->flags != CB_WIRE_STDERR : h->flags != 0)
		return CB_E_DENIED;
	if ((h->buffer_count > 0 || h->buffers_len > 0) && h->type != CB_WIRE_UP_COMM_OPEN &&
	    h->type != CB_WIRE_UP_COMM_MSG && h->type != CB_WIRE_UP_COMM_CLOSE && h->type != CB_WIRE_DISPLAY_DATA &&
	    h->type != CB_WIRE_UPDATE_DISPLAY_DATA)
		return CB_E_DENIED;
	return 0;
}

int cb_side_policy_header(const struct cb_guest_rules *g, uint32_t answer, uint64_t request,
			  const struct cb_wire_header *h, const char **ret_reason)
{
	*ret_reason = "message not allowed on the side wire";
	if (answer == 0 || h->type != answer)
		return CB_E_DENIED;
	*ret_reason = "request id that this message may not carry";
	if (h->request != request)
		return CB_E_DENIED;
	*ret_reason = "message over its size limit";
	if (body_size(h) > (answer == CB_WIRE_IS_COMPLETE_REPLY ? CB_WIRE_SMALL : g->max_message))
		return CB_E_TOO_BIG;
	*ret_reason = "flags or buffers that this message has no use for";
	return h->flags != 0 || h->buffer_count > 0 || h->buffers_len > 0 ? CB_E_DENIED : 0;
}

#define STR CB_JSON_STRING
#define OBJ CB_JSON_OBJECT
#define MAX_FIELDS 8

static const struct cb_json_field hello_fields[] = {
	{ .name = "wire_version", .types = CB_JSON_INTEGER, .required = true },
	{ .name = "implementation", .types = STR, .required = true },
	{ .name = "implementation_version", .types = STR },
	{ .name = "python_version", .types = STR, .required = true },
	{ .name = "missing_paths", .types = CB_JSON_ARRAY, .elements = STR },
	{ .name = "side", .types = CB_JSON_BOOL },
	{ 0 },
};
static const struct cb_json_field display_fields[] = {
	{ .name = "data", .types = OBJ, .required = true },
	{ .name = "metadata", .types = OBJ, .required = true },
	{ .name = "transient", .types = OBJ },
	{ 0 },
};
static const struct cb_json_field result_fields[] = {
	{ .name = "data", .types = OBJ, .required = true },
	{ .name = "metadata", .types = OBJ, .required = true },
	{ .name = "transient", .types = OBJ },
	{ .name = "execution_count", .forbidden = true },
	{ 0 },
};
static const struct cb_json_field error_fields[] = {
	{ .name = "ename", .types = STR, .required = true },
	{ .name = "evalue", .types = STR, .required = true },
	{ .name = "traceback", .types = CB_JSON_ARRAY, .elements = STR, .required = true },
	{ 0 },
};
static const struct cb_json_field clear_fields[] = { { .name = "wait", .types = CB_JSON_BOOL, .required = true },
						     { 0 } };
static const struct cb_json_field comm_open_fields[] = {
	{ .name = "comm_id", .types = STR, .required = true },
	{ .name = "target_name", .types = STR, .required = true },
	{ .name = "data", .types = CB_JSON_ANY, .required = true }, /* bokeh sends strings */
	{ 0 },
};
static const struct cb_json_field comm_fields[] = {
	{ .name = "comm_id", .types = STR, .required = true },
	{ .name = "data", .types = CB_JSON_ANY, .required = true },
	{ 0 },
};
static const struct cb_json_field execute_reply_fields[] = {
	{ .name = "status", .types = STR, .required = true },
	{ .name = "payload", .types = CB_JSON_ARRAY, .elements = OBJ },
	{ .name = "user_expressions", .types = OBJ, .members = OBJ },
	{ .name = "ename", .types = STR },
	{ .name = "evalue", .types = STR },
	{ .name = "traceback", .types = CB_JSON_ARRAY, .elements = STR },
	{ .name = "execution_count", .forbidden = true },
	{ 0 },
};
static const struct cb_json_field complete_fields[] = {
	{ .name = "status", .types = STR, .required = true },
	{ .name = "matches", .types = CB_JSON_ARRAY, .elements = STR, .required = true },
	{ .name = "cursor_start", .types = CB_JSON_INTEGER, .required = true },
	{ .name = "cursor_end", .types = CB_JSON_INTEGER, .required = true },
	{ .name = "metadata", .types = OBJ, .required = true },
	{ 0 },
};
static const struct cb_json_field inspect_fields[] = {
	{ .name = "status", .types = STR, .required = true },
	{ .name = "found", .types = CB_JSON_BOOL, .required = true },
	{ .name = "data", .types = OBJ, .required = true },
	{ .name = "metadata", .types = OBJ, .required = true },
	{ 0 },
};
static const struct cb_json_field is_complete_fields[] = {
	{ .name = "status", .types = STR, .required = true },
	{ .name = "indent", .types = STR },
	{ 0 },
};
static const struct cb_json_field input_fields[] = {
	{ .name = "prompt", .types = STR, .required = true },
	{ .name = "password", .types = CB_JSON_BOOL, .required = true },
	{ 0 },
};
static const struct cb_json_field checkpoint_fields[] = {
	{ .name = "status", .types = STR, .required = true },
	{ .name = "left_out", .types = OBJ, .members = CB_JSON_INTEGER | STR },
	{ .name = "ename", .types = STR },
	{ .name = "evalue", .types = STR },
	{ 0 },
};
static const struct cb_json_field resumed_fields[] = {
	{ .name = "side", .types = CB_JSON_BOOL },
	{ 0 },
};
static const struct cb_json_field debug_reply_fields[] = {
	{ .name = "type", .types = STR, .required = true },
	{ .name = "request_seq", .types = CB_JSON_INTEGER, .required = true },
	{ .name = "success", .types = CB_JSON_BOOL, .required = true },
	{ .name = "command", .types = STR, .required = true },
	{ .name = "message", .types = STR },
	{ 0 },
};
static const struct cb_json_field debug_event_fields[] = {
	{ .name = "type", .types = STR, .required = true },
	{ .name = "event", .types = STR, .required = true },
	{ 0 },
};
static const struct cb_json_field no_fields[] = { { 0 } };

static const struct cb_json_field *fields_of(uint32_t type)
{
	static const struct cb_json_field *const fields[] = {
		[CB_WIRE_HELLO] = hello_fields,
		[CB_WIRE_DISPLAY_DATA] = display_fields,
		[CB_WIRE_UPDATE_DISPLAY_DATA] = display_fields,
		[CB_WIRE_EXECUTE_RESULT] = result_fields,
		[CB_WIRE_ERROR] = error_fields,
		[CB_WIRE_CLEAR_OUTPUT] = clear_fields,
		[CB_WIRE_UP_COMM_OPEN] = comm_open_fields,
		[CB_WIRE_UP_COMM_MSG] = comm_fields,
		[CB_WIRE_UP_COMM_CLOSE] = comm_fields,
		[CB_WIRE_EXECUTE_REPLY] = execute_reply_fields,
		[CB_WIRE_COMPLETE_REPLY] = complete_fields,
		[CB_WIRE_INSPECT_REPLY] = inspect_fields,
		[CB_WIRE_IS_COMPLETE_REPLY] = is_complete_fields,
		[CB_WIRE_INPUT_REQUEST] = input_fields,
		[CB_WIRE_CHECKPOINT_REPLY] = checkpoint_fields,
		[CB_WIRE_RESUMED] = resumed_fields,
		[CB_WIRE_DEBUG_REPLY] = debug_reply_fields,
		[CB_WIRE_DEBUG_EVENT] = debug_event_fields,
	};

	return type < CB_COUNT(fields) && fields[type] != NULL ? fields[type] : no_fields;
}

/* Puts the fields that the supervisor reads where it finds them. */
static void pick(const struct cb_json_field *f, size_t n, struct cb_guest_content *c)
{
	const struct {
		const char *name;
		struct cb_span *to;
	} wanted[] = {
		{ "status", &c->status },
		{ "comm_id", &c->comm_id },
		{ "target_name", &c->target_name },
		{ "ename", &c->ename },
		{ "evalue", &c->evalue },
		{ "traceback", &c->traceback },
		{ "wire_version", &c->wire_version },
		{ "implementation", &c->implementation },
		{ "python_version", &c->python_version },
		{ "missing_paths", &c->missing_paths },
		{ "left_out", &c->left_out },
		{ "type", &c->type },
		{ "event", &c->event },
	};

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < CB_COUNT(wanted); j++)
			if (strcmp(f[i].name, wanted[j].name) == 0)
				*wanted[j].to = f[i].ret;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(f[i].name, "side") == 0)
			c->side = f[i].ret_type == CB_JSON_TRUE;
		if (strcmp(f[i].name, "success") == 0)
			c->success = f[i].ret_type == CB_JSON_TRUE;
	}
}

static int check_reply(uint32_t type, const struct cb_guest_content *c, const char **ret_reason)
{
	bool ok = cb_json_string_is(c->status, "ok"), error = cb_json_string_is(c->status, "error");

	if (type == CB_WIRE_IS_COMPLETE_REPLY) {
		*ret_reason = "is_complete status is none of the protocol's";
		return cb_json_string_is(c->status, "complete") || cb_json_string_is(c->status, "incomplete") ||
				       cb_json_string_is(c->status, "invalid") ||
				       cb_json_string_is(c->status, "unknown")
			       ? 0
			       : CB_E_SYNTAX;
	}
	*ret_reason = "status is neither ok nor error";
	if (!ok && !error)
		return CB_E_SYNTAX;
	*ret_reason = "an error without ename, evalue and traceback";
	if (type == CB_WIRE_EXECUTE_REPLY && error &&
	    (c->ename.data == NULL || c->evalue.data == NULL || c->traceback.data == NULL))
		return CB_E_SYNTAX;
	return 0;
}

int cb_guest_policy_content(const struct cb_frame *frame, struct cb_guest_content *ret_content, const char **ret_reason)
{
	struct cb_json_field f[MAX_FIELDS];
	struct cb_json_error e = { 0 };
	size_t n = 0;

	memset(ret_content, 0, sizeof(*ret_content));
	if (frame->header.metadata_len > 0) {
		int r = cb_json_scan_object(frame->metadata.data, frame->metadata.len, NULL, 0, &e);

		*ret_reason = e.reason;
		if (r < 0)
			return r;
	}
	if (frame->header.type == CB_WIRE_STREAM)
		return 0; /* raw text: the writer of JSON strings repairs what is not UTF-8 */
	for (const struct cb_json_field *from = fields_of(frame->header.type); from[n].name != NULL; n++)
		f[n] = from[n];
	int r = cb_json_scan_object(frame->content, frame->header.content_len, f, n, &e);

	*ret_reason = e.reason;
	if (r < 0)
		return r;
	pick(f, n, ret_content);
	if (ret_content->type.data != NULL) {
		*ret_reason = "type is neither response nor event";
		return cb_json_string_is(ret_content->type, ret_content->event.data != NULL ? "event" : "response")
			       ? 0
			       : CB_E_SYNTAX;
	}
	return ret_content->status.data != NULL ? check_reply(frame->header.type, ret_content, ret_reason) : 0;
}
