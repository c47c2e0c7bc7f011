/* Host tools: what may be registered, what the guest may call, which answers count, and what is told of calls whose
 * cells are undone. */
#include "jupyter/tools.h"

#include <cellblock/error.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "jupyter/message.h"

#define TWO                                                                                                            \
	"{\"tools\":[{\"name\":\"add\"},"                                                                             \
	"{\"name\":\"pay\",\"description\":null,\"inputSchema\":{},\"awaitable\":true}]}"
#define CALL(name) "{\"tool\":\"" name "\",\"args\":[1],\"kwargs\":{}}"

/* The value of an answer, a raw JSON string. */
#define RESULTS(list) "\"{\\\"results\\\":[" list "]}\""
#define OK(id, value) "{\\\"id\\\":\\\"" id "\\\",\\\"ok\\\":" value "}"
#define FAILED(id) "{\\\"id\\\":\\\"" id "\\\",\\\"error\\\":{\\\"type\\\":\\\"T\\\",\\\"message\\\":\\\"m\\\"}}"
#define REFUSED(id) \
	"{\\\"id\\\":\\\"" id \
	"\\\",\\\"error\\\":{\\\"type\\\":\\\"T\\\",\\\"message\\\":\\\"m\\\"},\\\"completed\\\":false}"

static struct cb_tools tools;
static struct cb_calls *calls;
static struct cb_buf text;

static struct cb_span span(const char *s)
{
	return (struct cb_span){ s, strlen(s) };
}

static struct cb_toolset *parse(const char *content)
{
	struct cb_toolset *set = NULL;
	char what[256] = "";

	assert_int_equal(cb_tools_parse(span(content), 4096, &set, what, sizeof(what)), 0);
	return set;
}

static struct cb_calls *begin(const char *session, uint64_t cell)
{
	struct cb_request r = { .session = span(session), .execute = { .allow_stdin = true } };
	struct cb_calls *c = cb_calls_new(&tools, &r);

	cb_calls_begin(c, cell, &tools.done);
	return c;
}

static int setup(void **state)
{
	(void)state;
	tools = (struct cb_tools){ 0 };
	text = CB_BUF_INIT(1u << 20);
	assert_int_equal(cb_tools_register(&tools, span("\"s\""), parse(TWO)), 0);
	calls = begin("\"s\"", 1);
	assert_non_null(calls);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cb_calls_free(calls);
	cb_tools_release(&tools);
	cb_buf_release(&text);
	return 0;
}

static void expect_text(const char *wanted)
{
	assert_int_equal(cb_buf_append(&text, "", 1), 0);
	assert_string_equal((const char *)text.data, wanted);
	cb_buf_clear(&text);
}

static void test_what_may_be_registered(void **state)
{
	static const struct {
		const char *content, *says;
	} bad[] = {
		{ "", "content" },
		{ "[]", "content" },
		{ "{}", "tools" },
		{ "{\"tools\":{}}", "tools" },
		{ "{\"tools\":[1]}", "tools" },
		{ "{\"tools\":[{}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"_\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"__a\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"1a\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"a b\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"a\\u0000b\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"\\u00e4\"}]}", "tools[0].name" },
		{ "{\"tools\":[{\"name\":\"a\"},{\"name\":\"a\"}]}", "there twice" },
		{ "{\"tools\":[{\"name\":\"a\",\"description\":1}]}", "tools[0].description" },
		{ "{\"tools\":[{\"name\":\"a\",\"inputSchema\":[]}]}", "tools[0].inputSchema" },
		{ "{\"tools\":[{\"name\":\"a\",\"awaitable\":1}]}", "tools[0].awaitable" },
		{ "{\"tools\":[{\"name\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}",
		  "at most 64" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cb_toolset *set = NULL;
		char what[256] = "";

		assert_true(cb_tools_parse(span(bad[i].content), 4096, &set, what, sizeof(what)) < 0);
		assert_null(set);
		if (strstr(what, bad[i].says) == NULL)
			fail_msg("%s: %s", bad[i].content, what);
	}
	struct cb_toolset *set = NULL;
	char what[256] = "";

	assert_int_equal(cb_tools_parse(span(TWO), 10, &set, what, sizeof(what)), CB_E_TOO_BIG);
	set = parse("{\"tools\":[]}");
	assert_int_equal(set->count, 0);
	cb_toolset_unref(set);
}

static void test_at_most_a_thousand(void **state)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1u << 20);

	(void)state;
	assert_int_equal(cb_buf_append_str(&b, "{\"tools\":["), 0);
	for (int i = 0; i <= CB_TOOLS_MAX; i++)
		assert_int_equal(cb_buf_printf(&b, "%s{\"name\":\"t%d\"}", i > 0 ? "," : "", i), 0);
	assert_int_equal(cb_buf_append_str(&b, "]}"), 0);
	struct cb_toolset *set = NULL;
	char what[256] = "";

	assert_true(cb_tools_parse(cb_buf_span(&b), 1u << 20, &set, what, sizeof(what)) < 0);
	assert_non_null(strstr(what, "at most 1000"));
}

/* The sessions that used theirs last keep them, and a set outlives its place as long as a cell has it. */
static void test_sessions(void **state)
{
	(void)state;
	for (int i = 0; i < CB_TOOLS_SESSIONS; i++) {
		char session[32];

		snprintf(session, sizeof(session), "\"%d\"", i);
		assert_int_equal(cb_tools_register(&tools, span(session), parse(TWO)), 0);
		assert_non_null(cb_tools_find(&tools, span("\"0\"")));
	}
	assert_null(cb_tools_find(&tools, span("\"s\"")));
	assert_non_null(cb_tools_find(&tools, span("\"0\"")));
	assert_null(cb_tools_find(&tools, (struct cb_span){ NULL, 0 }));
	assert_int_equal(calls->set->count, 2);
	assert_int_equal(cb_tools_register(&tools, span("\"0\""), parse("{\"tools\":[]}")), 0);
	assert_null(cb_tools_find(&tools, span("\"0\"")));
	struct cb_request deaf = { .session = span("\"1\"") };

	assert_null(cb_calls_new(&tools, &deaf)); /* no allow_stdin */
}

static int ask(const char *metadata)
{
	const char *reason = NULL;
	int r = cb_calls_ask(&tools, calls, span(metadata), &text, &reason);

	if (r < 0) {
		assert_non_null(reason);
		cb_buf_clear(&text);
	}
	return r;
}

static void test_what_may_be_called(void **state)
{
	static const char *bad[] = {
		"[]",
		"{\"calls\":{}}",
		"{\"calls\":[]}",
		"{\"calls\":[1]}",
		"{\"calls\":[{}]}",
		"{\"calls\":[" CALL("sub") "]}",
		"{\"calls\":[" CALL("add") "," CALL("add\\u0000") "]}",
		"{\"calls\":[{\"tool\":\"add\",\"args\":{},\"kwargs\":{}}]}",
		"{\"calls\":[{\"tool\":\"add\",\"args\":[],\"kwargs\":[]}]}",
		"{\"calls\":[{\"tool\":\"add\",\"args\":[],\"kwargs\":{},\"id\":\"1\"}]}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(ask(bad[i]) < 0);
	uint64_t last = tools.last_call;

	assert_int_equal(ask("{\"calls\":[" CALL("pay") "," CALL("add") "]}"), 0);
	char wanted[256];

	snprintf(wanted, sizeof(wanted),
		 "{\"cellblock\":{\"calls\":[{\"id\":\"%llu\",\"tool\":\"pay\",\"args\":[1],\"kwargs\":{}},"
		 "{\"id\":\"%llu\",\"tool\":\"add\",\"args\":[1],\"kwargs\":{}}]}}",
		 (unsigned long long)last + 1, (unsigned long long)last + 2);
	expect_text(wanted);
	assert_int_equal(ask("{}"), 0); /* input(): nothing is called */
	expect_text("{}");
	const char *reason = NULL;

	assert_int_equal(cb_calls_ask(&tools, NULL, span("{\"calls\":[" CALL("add") "]}"), &text, &reason),
			 CB_E_DENIED);
}

static void test_too_many_together(void **state)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1u << 20);

	(void)state;
	assert_int_equal(cb_buf_append_str(&b, "{\"calls\":["), 0);
	for (int i = 0; i <= CB_CALLS_TOGETHER; i++)
		assert_int_equal(cb_buf_printf(&b, "%s%s", i > 0 ? "," : "", CALL("add")), 0);
	assert_int_equal(cb_buf_append(&b, "]}", 3), 0);
	assert_int_equal(ask((const char *)b.data), CB_E_TOO_BIG);
}

static int answer(const char *value)
{
	return cb_calls_answer(&tools, calls, span(value), &text);
}

static void test_answers(void **state)
{
	(void)state;
	assert_int_equal(ask("{\"calls\":[" CALL("add") "," CALL("pay") "]}"), 0); /* 1 and 2 */
	cb_buf_clear(&text);
	assert_int_equal(answer("\"{}\""), 0);
	assert_non_null(strstr((char *)text.data, "lacks the list of results"));
	cb_buf_clear(&text);
	assert_int_equal(answer("\"no JSON\""), 0);
	assert_non_null(strstr((char *)text.data, "\"error\""));
	cb_buf_clear(&text);
	assert_int_equal(answer(RESULTS("7," OK("9", "1") "," OK("01", "1"))), 0);
	assert_non_null(strstr((char *)text.data, "has no result of this call"));
	cb_buf_clear(&text);
	/* in any order, each once, and no more than a value or an error */
	assert_int_equal(answer(RESULTS(FAILED("2") "," OK("1", "[5]") "," OK("1", "6"))), 0);
	expect_text("{\"results\":[{\"ok\":[5]},{\"error\":{\"type\":\"T\",\"message\":\"m\"}}]}");
	cb_calls_over(calls);
	assert_int_equal(ask("{\"calls\":[" CALL("add") "]}"), 0); /* 3 */
	cb_buf_clear(&text);
	assert_int_equal(answer(RESULTS(OK("1", "5"))), CB_E_UNKNOWN);
	assert_int_equal(answer(RESULTS("{\\\"id\\\":\\\"3\\\",\\\"ok\\\":1,\\\"error\\\":{}}")), 0);
	assert_non_null(strstr((char *)text.data, "has no result"));
	cb_buf_clear(&text);
	struct cb_json j = cb_json_begin(&text);

	cb_calls_write(calls, &j);
	assert_int_equal(cb_json_done(&j), 0);
	expect_text("{\"calls\":[{\"id\":\"1\",\"tool\":\"add\",\"completed\":true},"
		    "{\"id\":\"2\",\"tool\":\"pay\",\"completed\":true},"
		    "{\"id\":\"3\",\"tool\":\"add\",\"completed\":false}]}");
	char said[256] = "the end";

	cb_calls_tell(calls, said, sizeof(said));
	assert_string_equal(said,
			    "the end; host tools had completed, and that is not undone: pay (call 2), add (call 1)");
}

/* What was refused, or ran over its time, is answered once like any other, and is not told as done. */
static void test_an_answer_without_an_end(void **state)
{
	char said[64] = "";

	(void)state;
	assert_int_equal(ask("{\"calls\":[" CALL("add") "," CALL("pay") "]}"), 0);
	cb_buf_clear(&text);
	assert_int_equal(answer(RESULTS(REFUSED("1") "," OK("1", "5"))), 0);
	expect_text("{\"results\":[{\"error\":{\"type\":\"T\",\"message\":\"m\"}},null]}");
	cb_calls_tell(calls, said, sizeof(said));
	assert_string_equal(said, "");
	cb_buf_clear(&text);
	struct cb_json j = cb_json_begin(&text);

	cb_calls_write(calls, &j);
	assert_int_equal(cb_json_done(&j), 0);
	expect_text("{\"calls\":[{\"id\":\"1\",\"tool\":\"add\",\"completed\":false},"
		    "{\"id\":\"2\",\"tool\":\"pay\",\"completed\":false}]}");
}

/* Refused as a whole, an answer says of no call whether it completed; one that comes late does. */
static void test_an_answer_that_is_refused(void **state)
{
	char said[256] = "the end";

	(void)state;
	assert_int_equal(ask("{\"calls\":[" CALL("add") "," CALL("pay") "]}"), 0);
	cb_buf_clear(&text);
	assert_int_equal(answer(RESULTS("NaN")), 0);
	assert_non_null(strstr((char *)text.data, "is refused: not a JSON value; not known whether it completed"));
	cb_calls_over(calls);
	cb_buf_clear(&text);
	assert_int_equal(ask("{\"calls\":[" CALL("add") "]}"), 0); /* 3 */
	cb_buf_clear(&text);
	assert_int_equal(answer(RESULTS(REFUSED("1"))), CB_E_UNKNOWN);
	struct cb_json j = cb_json_begin(&text);

	cb_calls_write(calls, &j);
	assert_int_equal(cb_json_done(&j), 0);
	expect_text("{\"calls\":[{\"id\":\"1\",\"tool\":\"add\",\"completed\":false},"
		    "{\"id\":\"2\",\"tool\":\"pay\",\"completed\":null},"
		    "{\"id\":\"3\",\"tool\":\"add\",\"completed\":false}]}");
	cb_calls_tell(calls, said, sizeof(said));
	assert_string_equal(said, "the end; host tools had or may have completed, and that is not undone: "
				  "pay (call 2; not known whether it completed)");
	cb_calls_keep(calls, 1);
	cb_tools_undone(&tools, 0, &text, said, sizeof(said));
	assert_string_equal(said, "; what host tools did for undone cells stays done: "
				  "pay (call 2 of cell [1]; not known whether it completed)");
	expect_text("[{\"id\":\"2\",\"tool\":\"pay\",\"cell\":1,\"completed\":null}]");
}

static void call_and_answer(void)
{
	char value[128];

	assert_int_equal(ask("{\"calls\":[" CALL("add") "]}"), 0);
	cb_buf_clear(&text);
	snprintf(value, sizeof(value), "\"{\\\"results\\\":[{\\\"id\\\":\\\"%llu\\\",\\\"ok\\\":1}]}\"",
		 (unsigned long long)tools.last_call);
	assert_int_equal(answer(value), 0);
	cb_buf_clear(&text);
	cb_calls_over(calls);
}

/* Only the youngest are told, and the rest is counted. */
static void test_many_calls(void **state)
{
	char said[128] = "";

	(void)state;
	for (int i = 0; i < 3 * CB_CALLS_TOLD; i++)
		call_and_answer();
	assert_true(calls->count <= CB_CALLS_TOLD + CB_CALLS_TOGETHER);
	assert_int_equal(calls->forgotten + calls->count, 3 * CB_CALLS_TOLD);
	cb_calls_tell(calls, said, sizeof(said));
	assert_int_equal(strlen(said), sizeof(said) - 1);
	cb_calls_keep(calls, 7);
	assert_int_equal(tools.done.count, CB_CALLS_DONE);
	cb_tools_undone(&tools, 0, &text, said, sizeof(said));
	assert_non_null(strstr(said, "add (call 3000 of cell [7])"));
	assert_non_null(strstr(said, " and others before"));
	assert_int_equal(tools.done.count, 0);
}

/* Two cells, each with a call; going back between them names the second's, and later the first's. */
static void test_undone(void **state)
{
	char said[256];

	(void)state;
	call_and_answer();
	assert_int_equal(ask("{\"calls\":[" CALL("pay") "]}"), 0); /* never answered */
	cb_buf_clear(&text);
	cb_calls_keep(calls, 1);
	cb_calls_free(calls);
	calls = begin("\"s\"", 2);
	call_and_answer();
	cb_calls_keep(calls, 0); /* it has no number */
	cb_calls_keep(NULL, 5);
	cb_tools_undone(&tools, 2, &text, said, sizeof(said));
	assert_string_equal(said, "");
	assert_int_equal(text.len, 0);
	cb_tools_undone(&tools, 1, &text, said, sizeof(said));
	assert_string_equal(said, "; what host tools did for undone cells stays done: add (call 3)");
	expect_text("[{\"id\":\"3\",\"tool\":\"add\",\"cell\":null}]");
	cb_tools_undone(&tools, 0, &text, said, sizeof(said));
	assert_string_equal(said, "; what host tools did for undone cells stays done: add (call 1 of cell [1])");
	expect_text("[{\"id\":\"1\",\"tool\":\"add\",\"cell\":1}]");
	cb_tools_undone(&tools, 0, &text, said, sizeof(said));
	assert_string_equal(said, "");
	calls->line = NULL; /* it has not begun */
	cb_calls_keep(calls, 3);
	assert_int_equal(tools.done.count, 0);
}

/* What a branch's cells have called is its own until it is adopted, and is undone then with all that ran in it. */
static void test_of_a_branch(void **state)
{
	struct cb_called_list branch = { 0 };
	static char said[64 * CB_CALLS_DONE];

	(void)state;
	cb_calls_begin(calls, 0, &branch);
	call_and_answer();
	cb_calls_keep(calls, 4);
	assert_int_equal(tools.done.count, 0);
	cb_tools_join(&tools, &branch, 9);
	cb_tools_undone(&tools, 9, &text, said, sizeof(said));
	assert_string_equal(said, "");
	cb_tools_undone(&tools, 8, &text, said, sizeof(said));
	assert_string_equal(said, "; what host tools did for undone cells stays done: add (call 1 of cell [4])");
	expect_text("[{\"id\":\"1\",\"tool\":\"add\",\"cell\":4}]");
	for (int i = 0; i < CB_CALLS_DONE; i++) /* one more than there is room for */
		call_and_answer();
	cb_calls_keep(calls, 4);
	cb_tools_join(&tools, &branch, 10);
	assert_int_equal(tools.done.count, CB_CALLS_DONE);
	cb_tools_undone(&tools, 9, &text, said, sizeof(said));
	assert_non_null(strstr(said, " and others before"));
	cb_called_release(&branch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_may_be_registered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_most_a_thousand, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_may_be_called, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_together, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_without_an_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_that_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(test_undone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_of_a_branch, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
