/* Host tools: what sessions have registered, what cells call, what clients answer.
 *
 * Trust domain: supervisor; parses what clients and the guest say, after the strict scan. Invariants: the guest calls
 * only what the cell's own session had registered when the cell arrived; ids are given here, once, and no guest says
 * one; each call is answered at most once, by the client that was asked; all lists are bounded. Arguments and results
 * pass as bytes.
 */
#include "tools.h"

#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <inttypes.h>
#include <errno.h>
#include <stdlib.h>

#include "message.h"

#define IN_DOUBT "; not known whether it completed"

/* ---- registering ---- */

void cb_toolset_unref(struct cb_toolset *t)
{
	if (t == NULL || --t->refs > 0)
		return;
	cb_buf_release(&t->session);
	cb_buf_release(&t->list);
	free(t->name);
	free(t);
}

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool good_name(const char *name)
{
	if (!letter(name[0]) || strcmp(name, "_") == 0 || strncmp(name, "__", 2) == 0)
		return false;
	for (; *name != '\0'; name++)
		if (!letter(*name) && !(*name >= '0' && *name <= '9'))
			return false;
	return true;
}

/* Decoded, with one NUL at its end; CB_E_TOO_BIG if it does not fit. */
static int decode_name(struct cb_span raw, char ret_name[CB_TOOL_NAME])
{
	CB_AUTO_BUF text = CB_BUF_INIT(CB_TOOL_NAME - 1);
	int r = cb_json_string_decode(raw, &text);

	if (r < 0)
		return r;
	if (text.len == 0 || memchr(text.data, 0, text.len) != NULL)
		return CB_E_SYNTAX;
	memset(ret_name, 0, CB_TOOL_NAME);
	memcpy(ret_name, text.data, text.len);
	return 0;
}

static int find_name(const struct cb_toolset *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (strcmp(t->name[i], name) == 0)
			return (int)i;
	return CB_E_UNKNOWN;
}

static int parse_tool(struct cb_toolset *t, struct cb_span element, char *ret_what, size_t size)
{
	struct cb_json_field f[] = {
		{ .name = "name", .types = CB_JSON_STRING, .required = true },
		{ .name = "description", .types = CB_JSON_STRING | CB_JSON_NULL },
		{ .name = "inputSchema", .types = CB_JSON_OBJECT | CB_JSON_NULL },
		{ .name = "awaitable", .types = CB_JSON_BOOL | CB_JSON_NULL },
	};
	struct cb_json_error e = { 0 };
	char name[CB_TOOL_NAME];
	int r = cb_json_scan_object(element.data, element.len, f, 4, &e);

	if (r < 0) {
		snprintf(ret_what, size, "tools[%zu]%s%s: %s", t->count, e.field != NULL ? "." : "",
			 e.field != NULL ? e.field : "", e.reason);
		return r;
	}
	if (decode_name(f[0].ret, name) < 0 || !good_name(name)) {
		snprintf(ret_what, size,
			 "tools[%zu].name: a Python name of at most %d ASCII characters is allowed, not \"_\", and no "
			 "two underscores in front",
			 t->count, CB_TOOL_NAME - 1);
		return CB_E_SYNTAX;
	}
	if (find_name(t, name) >= 0) {
		snprintf(ret_what, size, "tools[%zu].name: \"%s\" is there twice", t->count, name);
		return CB_E_SYNTAX;
	}
	memcpy(t->name[t->count++], name, sizeof(name));
	return 0;
}

static int parse_list(struct cb_toolset *t, struct cb_span list, char *ret_what, size_t size)
{
	struct cb_span rest = list, element;

	for (size_t i = 0; cb_json_next_element(&rest, &element); i++) {
		int r = CB_E_SYNTAX;

		if (i == CB_TOOLS_MAX)
			snprintf(ret_what, size, "tools: at most %d are allowed", CB_TOOLS_MAX);
		else
			r = parse_tool(t, element, ret_what, size);
		if (r < 0)
			return r;
	}
	return cb_buf_append(&t->list, list.data, list.len);
}

int cb_tools_parse(struct cb_span content, size_t max_bytes, struct cb_toolset **ret_set, char *ret_what, size_t size)
{
	struct cb_json_field f[] = {
		{ .name = "tools", .types = CB_JSON_ARRAY, .elements = CB_JSON_OBJECT, .required = true },
	};
	struct cb_json_error e = { 0 };
	int r = cb_json_scan_object(content.data, content.len, f, 1, &e);

	if (r < 0) {
		snprintf(ret_what, size, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
			 e.field != NULL ? ": " : "", e.reason, e.offset);
		return r;
	}
	if (f[0].ret.len > max_bytes) {
		snprintf(ret_what, size, "tools: %zu bytes are more than the %zu that are allowed", f[0].ret.len,
			 max_bytes);
		return CB_E_TOO_BIG;
	}
	struct cb_toolset *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	*t = (struct cb_toolset){ .refs = 1,
				  .session = CB_BUF_INIT(CB_TOOLS_SESSION_ID),
				  .list = CB_BUF_INIT(max_bytes),
				  .name = calloc(CB_TOOLS_MAX, CB_TOOL_NAME) };
	r = t->name != NULL ? parse_list(t, f[0].ret, ret_what, size) : -ENOMEM;
	if (r < 0) {
		cb_toolset_unref(t);
		return r;
	}
	*ret_set = t;
	return 0;
}

static bool is_of(const struct cb_toolset *t, struct cb_span session)
{
	return t->session.len == session.len && memcmp(t->session.data, session.data, session.len) == 0;
}

/* Takes the session's set out of its place; NULL if it has none. */
static struct cb_toolset *take_out(struct cb_tools *tools, struct cb_span session)
{
	for (size_t i = 0; i < CB_TOOLS_SESSIONS && tools->set[i] != NULL; i++) {
		struct cb_toolset *t = tools->set[i];

		if (!is_of(t, session))
			continue;
		memmove(&tools->set[i], &tools->set[i + 1], (CB_TOOLS_SESSIONS - i - 1) * sizeof(t));
		tools->set[CB_TOOLS_SESSIONS - 1] = NULL;
		return t;
	}
	return NULL;
}

static void put_first(struct cb_tools *tools, struct cb_toolset *t)
{
	cb_toolset_unref(tools->set[CB_TOOLS_SESSIONS - 1]);
	memmove(&tools->set[1], &tools->set[0], (CB_TOOLS_SESSIONS - 1) * sizeof(t));
	tools->set[0] = t;
}

int cb_tools_register(struct cb_tools *tools, struct cb_span session, struct cb_toolset *set)
{
	int r = cb_buf_append(&set->session, session.data, session.len);

	if (r < 0) {
		cb_toolset_unref(set);
		return r;
	}
	cb_toolset_unref(take_out(tools, session));
	if (set->count > 0)
		put_first(tools, set);
	else
		cb_toolset_unref(set);
	return 0;
}

struct cb_toolset *cb_tools_find(struct cb_tools *tools, struct cb_span session)
{
	struct cb_toolset *t = session.data != NULL && tools->set[0] != NULL ? take_out(tools, session) : NULL;

	if (t != NULL)
		put_first(tools, t);
	return t;
}

void cb_tools_release(struct cb_tools *tools)
{
	for (size_t i = 0; i < CB_TOOLS_SESSIONS; i++)
		cb_toolset_unref(tools->set[i]);
	memset(tools->set, 0, sizeof(tools->set));
	cb_called_release(&tools->done);
}

/* ---- a cell and its calls ---- */

struct cb_calls *cb_calls_new(struct cb_tools *tools, const struct cb_request *cell)
{
	struct cb_toolset *t = cell->execute.allow_stdin ? cb_tools_find(tools, cell->session) : NULL;
	struct cb_calls *c = t != NULL ? calloc(1, sizeof(*c)) : NULL;

	if (c == NULL)
		return NULL;
	c->set = t;
	t->refs++;
	return c;
}

void cb_calls_free(struct cb_calls *c)
{
	if (c == NULL)
		return;
	cb_toolset_unref(c->set);
	free(c->call);
	free(c);
}

/* Room for one more round of calls: the oldest are forgotten. */
static int make_room(struct cb_calls *c)
{
	size_t room = CB_CALLS_TOLD + CB_CALLS_TOGETHER, drop;

	if (c->call == NULL)
		c->call = calloc(room, sizeof(*c->call));
	if (c->call == NULL)
		return -ENOMEM;
	if (c->count <= CB_CALLS_TOLD)
		return 0;
	drop = c->count - CB_CALLS_TOLD;
	memmove(c->call, c->call + drop, CB_CALLS_TOLD * sizeof(*c->call));
	c->count = CB_CALLS_TOLD;
	c->forgotten += drop;
	return 0;
}

/* Opens an object. An id is text: not every client keeps 64 bits of a number. */
static void begin_call(struct cb_json *j, uint64_t id, const char *tool)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, id);
	cb_json_object(j, NULL);
	cb_json_put(j, "id", text, "tool", tool);
}

static int take_call(struct cb_tools *tools, struct cb_calls *c, struct cb_span element, struct cb_json *j,
		     const char **ret_reason)
{
	struct cb_json_field f[] = {
		{ .name = "tool", .types = CB_JSON_STRING, .required = true },
		{ .name = "args", .types = CB_JSON_ARRAY, .required = true },
		{ .name = "kwargs", .types = CB_JSON_OBJECT, .required = true },
		{ .name = "id", .forbidden = true },
	};
	struct cb_json_error e = { 0 };
	char name[CB_TOOL_NAME];
	int r = cb_json_scan_object(element.data, element.len, f, 4, &e), tool;

	*ret_reason = r == CB_E_DENIED ? "a call of a host tool with an id of its own" : e.reason;
	if (r < 0)
		return r;
	*ret_reason = "a call of a host tool that this client has not registered";
	tool = decode_name(f[0].ret, name) < 0 ? CB_E_UNKNOWN : find_name(c->set, name);
	if (tool < 0)
		return CB_E_DENIED;
	c->call[c->count++] = (struct cb_call){ .id = ++tools->last_call, .tool = (uint32_t)tool };
	c->asked++;
	begin_call(j, tools->last_call, name);
	cb_json_put(j, "args", f[1].ret, "kwargs", f[2].ret);
	cb_json_end(j);
	return 0;
}

int cb_calls_ask(struct cb_tools *tools, struct cb_calls *c, struct cb_span metadata, struct cb_buf *out,
		 const char **ret_reason)
{
	struct cb_json_field f[] = {
		{ .name = "calls", .types = CB_JSON_ARRAY, .elements = CB_JSON_OBJECT },
	};
	struct cb_json j = cb_json_begin(out);
	struct cb_span rest, element;
	struct cb_json_error e = { 0 };
	int r = metadata.len > 0 ? cb_json_scan_object(metadata.data, metadata.len, f, 1, &e) : 0;

	if (c != NULL)
		c->asked = 0;
	*ret_reason = e.reason;
	if (r < 0 || f[0].ret.data == NULL)
		return r < 0 ? r : cb_json_done(&j);
	*ret_reason = "a call of a host tool where none is registered";
	if (c == NULL)
		return CB_E_DENIED;
	*ret_reason = "calls of host tools that do not fit into memory";
	r = make_room(c);
	cb_json_object(&j, "cellblock");
	cb_json_array(&j, "calls");
	for (rest = f[0].ret; r == 0 && cb_json_next_element(&rest, &element);) {
		*ret_reason = "too many calls of host tools at a time";
		r = c->asked < CB_CALLS_TOGETHER ? take_call(tools, c, element, &j, ret_reason) : CB_E_TOO_BIG;
	}
	if (r < 0)
		return r;
	*ret_reason = c->asked > 0 ? "calls of host tools that do not fit into memory"
				   : "a question with no call of a host tool in it";
	return c->asked > 0 ? cb_json_done(&j) : CB_E_DENIED;
}

/* ---- answers ---- */

/* An id as we write it: digits. 0 = it is none. */
static uint64_t id_of(struct cb_span raw)
{
	uint64_t id = 0;

	if (raw.len < 3 || raw.len > 20 || raw.data[1] == '0')
		return 0;
	for (size_t i = 1; i + 1 < raw.len; i++) {
		if (raw.data[i] < '0' || raw.data[i] > '9')
			return 0;
		id = 10 * id + (uint64_t)(raw.data[i] - '0');
	}
	return id;
}

static struct cb_call *find_call(struct cb_calls *c, uint64_t id)
{
	for (size_t i = c->count; i > 0; i--)
		if (c->call[i - 1].id == id)
			return &c->call[i - 1];
	return NULL;
}

struct answer {
	struct cb_span result[CB_CALLS_TOGETHER]; /* raw value of ok or error; data NULL = none */
	bool failed[CB_CALLS_TOGETHER];
	size_t found, known; /* of what was asked; of calls there ever were */
};

static bool good_error(struct cb_span raw)
{
	struct cb_json_field f[] = {
		{ .name = "type", .types = CB_JSON_STRING, .required = true },
		{ .name = "message", .types = CB_JSON_STRING, .required = true },
	};

	return cb_json_scan_object(raw.data, raw.len, f, 2, NULL) == 0;
}

static void take_result(struct cb_tools *tools, struct cb_calls *c, struct cb_span element, struct answer *a)
{
	struct cb_json_field f[] = {
		{ .name = "id", .types = CB_JSON_STRING, .required = true },
		{ .name = "ok", .types = CB_JSON_ANY },
		{ .name = "error", .types = CB_JSON_OBJECT },
		{ .name = "completed", .types = CB_JSON_BOOL },
	};
	bool good = cb_json_scan_object(element.data, element.len, f, 4, NULL) == 0 &&
		    (f[1].ret.data != NULL) != (f[2].ret.data != NULL) &&
		    (f[2].ret.data == NULL || good_error(f[2].ret));
	uint64_t id = good ? id_of(f[0].ret) : 0;
	struct cb_call *call = id != 0 ? find_call(c, id) : NULL;

	a->known += id != 0 && id <= tools->last_call;
	if (call == NULL || call->answered)
		return;
	call->answered = true;
	call->in_doubt = false;
	call->completed = f[3].ret.data == NULL || f[3].ret.data[0] == 't';
	size_t at = (size_t)(call - c->call), first = c->count - c->asked;

	if (at < first) /* of an earlier question: too late */
		return;
	a->result[at - first] = f[1].ret.data != NULL ? f[1].ret : f[2].ret;
	a->failed[at - first] = f[1].ret.data == NULL;
	a->found++;
}

int cb_calls_refuse(struct cb_calls *c, struct cb_buf *out, const char *what, const char *reason)
{
	char text[512];

	for (size_t i = c->count - c->asked; i < c->count; i++)
		c->call[i].in_doubt = !c->call[i].answered;
	snprintf(text, sizeof(text), "the client's answer %s%s" IN_DOUBT, what, reason);
	return cb_json_write_object(out, "error", text);
}

static int write_results(const struct cb_calls *c, const struct answer *a, struct cb_buf *out)
{
	struct cb_json j = cb_json_begin(out);

	cb_json_array(&j, "results");
	for (size_t i = 0; i < c->asked; i++)
		if (a->result[i].data != NULL)
			cb_json_put_object(&j, NULL, a->failed[i] ? "error" : "ok", a->result[i]);
		else
			cb_json_put(&j, NULL, NULL);
	return cb_json_done(&j);
}

int cb_calls_answer(struct cb_tools *tools, struct cb_calls *c, struct cb_span value, struct cb_buf *out)
{
	CB_AUTO_BUF text = CB_BUF_INIT(value.len + 1);
	struct cb_json_field f[] = {
		{ .name = "results", .types = CB_JSON_ARRAY, .required = true },
	};
	struct cb_json_error e = { 0 };
	struct cb_span rest, element;
	struct answer a = { 0 };
	int r = cb_json_string_decode(value, &text);

	if (r == 0)
		r = cb_buf_append(&text, "", 1); /* so that there are bytes to look at */
	if (r < 0)
		return r;
	r = cb_json_scan_object(text.data, text.len - 1, f, 1, &e);
	if (r < 0)
		return cb_calls_refuse(c, out, r == CB_E_UNKNOWN ? "lacks the list of results: " : "is refused: ",
				       e.reason);
	for (rest = f[0].ret; cb_json_next_element(&rest, &element);)
		take_result(tools, c, element, &a);
	if (a.found == 0 && a.known > 0)
		return CB_E_UNKNOWN;
	if (a.found == 0)
		return cb_json_write_object(out, "error", "the client's answer has no result of this call");
	return write_results(c, &a, out);
}

void cb_calls_over(struct cb_calls *c)
{
	if (c != NULL)
		c->asked = 0;
}

/* ---- telling ---- */

static bool may_be_done(const struct cb_call *call)
{
	return call->completed || call->in_doubt;
}

void cb_calls_write(const struct cb_calls *c, struct cb_json *j)
{
	if (c == NULL || c->count == 0)
		return;
	cb_json_array(j, "calls");
	for (size_t i = c->count > CB_CALLS_TOLD ? c->count - CB_CALLS_TOLD : 0; i < c->count; i++) {
		begin_call(j, c->call[i].id, c->set->name[c->call[i].tool]);
		if (c->call[i].in_doubt)
			cb_json_put(j, "completed", NULL);
		else
			cb_json_put(j, "completed", c->call[i].completed);
		cb_json_end(j);
	}
	cb_json_end(j);
}

void cb_calls_tell(const struct cb_calls *c, char *text, size_t size)
{
	size_t at = strlen(text), room = 400, told = 0, done = 0, in_doubt = 0;

	for (size_t i = 0; c != NULL && i < c->count; i++) {
		done += may_be_done(&c->call[i]);
		in_doubt += c->call[i].in_doubt;
	}
	if (done == 0)
		return;
	at += (size_t)snprintf(text + at, size - at, "; host tools %s, and that is not undone:",
			       in_doubt == 0 ? "had completed" : "had or may have completed");
	for (size_t i = c->count; i > 0 && room > 0 && at < size; i--) {
		const struct cb_call *call = &c->call[i - 1];

		if (!may_be_done(call))
			continue;
		int n = snprintf(text + at, size - at, "%s %s (call %" PRIu64 "%s)", told > 0 ? "," : "",
				 c->set->name[call->tool], call->id, call->in_doubt ? IN_DOUBT : "");

		room = (size_t)n < room ? room - (size_t)n : 0;
		at += (size_t)n;
		told++;
	}
	if (at < size && told < done + c->forgotten)
		snprintf(text + at, size - at, " and %" PRIu64 " before", done + c->forgotten - told);
}

/* ---- what is undone with its cell ---- */

void cb_called_release(struct cb_called_list *l)
{
	free(l->item);
	*l = (struct cb_called_list){ 0 };
}

void cb_calls_begin(struct cb_calls *c, uint64_t cell, struct cb_called_list *line)
{
	if (c == NULL)
		return;
	c->cell = cell;
	c->line = line;
}

static void forget(struct cb_called_list *l, uint64_t cell)
{
	if (cell >= l->forgotten)
		l->forgotten = cell + 1;
}

static void keep_call(struct cb_called_list *l, const struct cb_called *called)
{
	if (l->item == NULL && (l->item = calloc(CB_CALLS_DONE, sizeof(*l->item))) == NULL)
		return;
	if (l->count == CB_CALLS_DONE) {
		forget(l, l->item[0].cell);
		memmove(&l->item[0], &l->item[1], --l->count * sizeof(l->item[0]));
	}
	l->item[l->count++] = *called;
}

void cb_calls_keep(const struct cb_calls *c, int64_t number)
{
	if (c == NULL || c->line == NULL)
		return;
	if (c->forgotten > 0)
		forget(c->line, c->cell);
	for (size_t i = 0; i < c->count; i++) {
		struct cb_called called = { .id = c->call[i].id, .cell = c->cell, .number = number };

		called.in_doubt = c->call[i].in_doubt;
		memcpy(called.tool, c->set->name[c->call[i].tool], sizeof(called.tool));
		if (may_be_done(&c->call[i]))
			keep_call(c->line, &called);
	}
}

void cb_tools_join(struct cb_tools *tools, const struct cb_called_list *branch, uint64_t cell)
{
	if (branch->forgotten > 0)
		forget(&tools->done, cell);
	for (size_t i = 0; i < branch->count; i++) {
		struct cb_called called = branch->item[i];

		called.cell = cell;
		keep_call(&tools->done, &called);
	}
}

void cb_tools_ended(struct cb_tools *tools, uint64_t cell, uint64_t ended)
{
	for (size_t i = 0; i < tools->done.count; i++)
		if (tools->done.item[i].cell == cell)
			tools->done.item[i].cell = ended;
}

/* The youngest first, as long as they fit. */
static void word_called(const struct cb_called *called, size_t n, bool more, char *ret_text, size_t size)
{
	size_t at = (size_t)snprintf(ret_text, size, "; what host tools did for undone cells stays done:");

	for (size_t i = n; i > 0 && at < size; i--) {
		const struct cb_called *c = &called[i - 1];
		char one[CB_TOOL_NAME + 64 + sizeof(IN_DOUBT)], of[32] = "";

		if (c->number > 0)
			snprintf(of, sizeof(of), " of cell [%" PRId64 "]", c->number);
		size_t len = (size_t)snprintf(one, sizeof(one), "%s %s (call %" PRIu64 "%s%s)", i < n ? "," : "",
					      c->tool, c->id, of, c->in_doubt ? IN_DOUBT : "");

		if (at + len + sizeof(" and others before") > size) {
			more = true;
			break;
		}
		memcpy(ret_text + at, one, len + 1);
		at += len;
	}
	if (more && at < size)
		snprintf(ret_text + at, size - at, " and others before");
}

void cb_tools_undone(struct cb_tools *tools, int64_t cell, struct cb_buf *out, char *ret_text, size_t size)
{
	struct cb_called *d = tools->done.item;
	size_t n = 0, kept = 0;

	ret_text[0] = '\0';
	for (size_t i = 0; i < tools->done.count; i++)
		n += (int64_t)d[i].cell > cell;
	if (n == 0)
		return;
	CB_AUTO_BUF gone = CB_BUF_INIT(n * sizeof(*d));
	struct cb_json j = cb_json_inside(out);

	cb_json_array(&j, NULL);
	for (size_t i = 0; i < tools->done.count; i++) {
		if ((int64_t)d[i].cell <= cell) {
			d[kept++] = d[i];
			continue;
		}
		begin_call(&j, d[i].id, d[i].tool);
		if (d[i].number > 0)
			cb_json_put(&j, "cell", d[i].number);
		else
			cb_json_put(&j, "cell", NULL);
		if (d[i].in_doubt)
			cb_json_put(&j, "completed", NULL);
		cb_json_end(&j);
		(void)cb_buf_append(&gone, &d[i], sizeof(d[i]));
	}
	(void)cb_json_done(&j);
	tools->done.count = kept;
	word_called((const struct cb_called *)(const void *)gone.data, gone.len / sizeof(*d),
		    (int64_t)tools->done.forgotten > cell + 1, ret_text, size);
}
