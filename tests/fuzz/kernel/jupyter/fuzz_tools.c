/* Fuzz target: host tools: what a client registers and answers, and what the guest calls.
 *
 * An input has parts between zero bytes: the content of a cellblock_tools_request (empty: one with two tools), and
 * then, by turns, the metadata of a question of the guest's and the value of the client's answer. Whatever they are,
 * what is written is JSON, each id is given once, and no call is completed twice.
 */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include "jupyter/message.h"
#include "jupyter/tools.h"

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cb_span next(const uint8_t **data, size_t *size)
{
	const uint8_t *end = *size > 0 ? memchr(*data, 0, *size) : NULL;
	size_t len = end != NULL ? (size_t)(end - *data) : *size;
	struct cb_span part = { len > 0 ? (const char *)*data : "", len };

	len += end != NULL;
	*data += len;
	*size -= len;
	return part;
}

static void check_json(const struct cb_buf *b)
{
	enum cb_json_type type = 0;

	CHECK(b->len > 0 && cb_json_scan(b->data, b->len, &type, NULL) == 0);
}

static size_t completed(const struct cb_calls *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->count; i++)
		n += c->call[i].completed;
	return n;
}

static void ask_and_answer(struct cb_tools *tools, struct cb_calls *c, struct cb_span metadata, struct cb_span value)
{
	CB_AUTO_BUF asked = CB_BUF_INIT(metadata.len + CB_CALLS_TOGETHER * 64 + 64);
	CB_AUTO_BUF answer = CB_BUF_INIT(value.len + CB_CALLS_TOGETHER * 16 + 512);
	const char *reason = NULL;
	uint64_t last = tools->last_call;
	enum cb_json_type type = 0;
	size_t before;

	if (cb_calls_ask(tools, c, metadata, &asked, &reason) < 0) {
		CHECK(reason != NULL);
		cb_calls_over(c);
		return;
	}
	check_json(&asked);
	CHECK(tools->last_call == last + c->asked);
	/* the supervisor passes on what it has scanned */
	if (cb_json_scan(value.data, value.len, &type, NULL) < 0 || type != CB_JSON_STRING || value.data[0] != '"' ||
	    value.data[value.len - 1] != '"')
		return;
	before = completed(c);
	if (cb_calls_answer(tools, c, value, &answer) == 0) {
		check_json(&answer);
		CHECK(completed(c) <= before + c->count);
		before = completed(c);
		(void)cb_calls_answer(tools, c, value, &answer);
		CHECK(completed(c) == before);
	}
}

static void tell(struct cb_tools *tools, const struct cb_calls *c)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1u << 20);
	char text[320] = "";

	struct cb_json j = cb_json_begin(&b);

	cb_calls_write(c, &j);
	CHECK(cb_json_done(&j) == 0);
	check_json(&b);
	cb_calls_tell(c, text, sizeof(text));
	CHECK(memchr(text, 0, sizeof(text)) != NULL);
	cb_calls_keep(c, 1);
	cb_buf_clear(&b);
	cb_tools_undone(tools, 0, &b, text, sizeof(text));
	if (b.len > 0)
		check_json(&b);
	CHECK((b.len > 0) == (text[0] != '\0') && memchr(text, 0, sizeof(text)) != NULL && tools->done.count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cb_span content = next(&data, &size);
	struct cb_tools tools = { 0 };
	struct cb_toolset *set = NULL;
	char what[256] = "";

	if (content.len == 0)
		content = CB_SPAN("{\"tools\":[{\"name\":\"add\"},{\"name\":\"pay\"}]}");
	if (cb_tools_parse(content, CB_TOOLS_BYTES, &set, what, sizeof(what)) < 0) {
		CHECK(what[0] != '\0' && memchr(what, 0, sizeof(what)) != NULL && set == NULL);
		return 0;
	}
	CHECK(set->count <= CB_TOOLS_MAX);
	CHECK(cb_tools_register(&tools, CB_SPAN("\"s\""), set) == 0);
	struct cb_request r = { .session = CB_SPAN("\"s\""), .execute = { .allow_stdin = true } };
	struct cb_calls *c = cb_calls_new(&tools, &r);

	if (c != NULL) {
		cb_calls_begin(c, 1, &tools.done);
		for (int i = 0; i < 64 && size > 0; i++) {
			struct cb_span metadata = next(&data, &size);

			ask_and_answer(&tools, c, metadata, next(&data, &size));
		}
		tell(&tools, c);
	}
	cb_calls_free(c);
	cb_tools_release(&tools);
	return 0;
}
