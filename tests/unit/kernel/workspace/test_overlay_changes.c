/* What is said of changes whose broker is not heard to its end, in the audit log, too: a commit may have written, a
 * discard is done. */
#include "rig.h"

#include <cellblock/fd.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workspace/overlay_changes.h"

static char path[64];

static struct rig *with_log(void)
{
	struct rig *r = rig_up();
	struct cb_err err = { 0 };

	snprintf(path, sizeof(path), "/tmp/cb-changes-%d.jsonl", (int)getpid());
	unlink(path);
	if (cb_audit_open(path, "test", &r->k.records.audit, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(cb_audit_start(r->k.records.audit), 0);
	r->k.workspace.mode = CB_WORKSPACE_OVERLAY;
	return r;
}

static struct cb_broker_request asked;
static int pipe_fd = -1;

static bool got_request(struct rig *r)
{
	size_t n = 0;

	return cb_fd_recv(r->broker, &asked, sizeof(asked), &pipe_fd, 1, &n, MSG_DONTWAIT) == (ssize_t)sizeof(asked);
}

/* Which of these lines it has. */
static void log_has(struct rig *r, const char *line, bool has)
{
	char *text = NULL;
	size_t len;

	assert_int_equal(cb_audit_close(r->k.records.audit), 0);
	r->k.records.audit = NULL;
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(cb_fd_read_all(fd, 1 << 20, &text, &len), 0);
	if ((strstr(text, line) != NULL) != has)
		fail_msg("%s", text);
	free(text);
	unlink(path);
}

static const char *begun(struct rig *r, const char *op)
{
	char content[32];

	snprintf(content, sizeof(content), "{\"op\":\"%s\"}", op);
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_file_request", content, NULL);

	rig_until(r, got_request);
	return id;
}

static void test_an_answer_that_is_not_whole(void **state)
{
	static const struct {
		const char *op, *line;
		bool has;
	} tried[] = { { "commit", "\"op\":\"commit\",\"counts\":\"unknown\"", true },
		      { "changes", "\"layer\"", false } };

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct rig *r = *state = with_log();
		const char *id = begun(r, tried[i].op);

		assert_int_equal(write(pipe_fd, "{\"status\":", 10), 10);
		cb_fd_close(&pipe_fd);
		rig_expect_error(r, RIG_CONTROL, "cellblock_file_reply", id, "WorkspaceError", "no whole answer");
		log_has(r, tried[i].line, tried[i].has);
		rig_teardown(state);
	}
}

static void test_the_kernels_end(void **state)
{
	struct rig *r = *state = with_log();
	const char *id = begun(r, "commit");

	cb_overlay_changes_shutdown(&r->k.workspace);
	rig_expect_error(r, RIG_CONTROL, "cellblock_file_reply", id, "KernelBusyError", "is finished");
	cb_fd_close(&pipe_fd);
	log_has(r, "\"op\":\"commit\",\"counts\":\"unknown\"", true);
}

static bool got_word(struct rig *r)
{
	return recv(r->broker, &asked, sizeof(asked), MSG_DONTWAIT) == (ssize_t)sizeof(asked);
}

/* It is told to stop listing; what it drops is dropped all the same, and the reply says so. */
static void test_a_discard_whose_list_is_interrupted(void **state)
{
	static const char cut[] = "{\"status\":\"error\",\"ename\":\"KeyboardInterrupt\",\"evalue\":\"i\","
				  "\"traceback\":[],\"changes\":[{\"path\":\"a\",\"change\":\"added\"}],"
				  "\"added\":1,\"modified\":0,\"deleted\":0,\"skipped\":0,\"failed\":0,"
				  "\"truncated\":false}";
	struct rig *r = *state = with_log();
	const char *id = begun(r, "discard");
	struct rig_msg m;
	json_int_t added;
	char *all;

	cb_overlay_changes_interrupt(&r->k.workspace);
	rig_until(r, got_word);
	assert_int_equal(asked.op, CB_BROKER_STOP);
	assert_int_equal(write(pipe_fd, cut, strlen(cut)), strlen(cut));
	cb_fd_close(&pipe_fd);
	m = rig_take(r, RIG_CONTROL, "cellblock_file_reply", id);
	all = json_dumps(m.content, JSON_COMPACT);
	added = json_integer_value(json_object_get(m.content, "added"));
	if (strcmp(rig_text(&m, "status"), "ok") != 0 || strcmp(rig_text(&m, "state"), "lost") != 0 || added != 1 ||
	    !json_is_true(json_object_get(m.content, "truncated")) ||
	    json_array_size(json_object_get(m.content, "changes")) != 1)
		fail_msg("%s", all);
	free(all);
	rig_msg_free(&m);
	log_has(r, "\"op\":\"discard\",\"added\":1", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_an_answer_that_is_not_whole, rig_teardown),
		cmocka_unit_test_teardown(test_the_kernels_end, rig_teardown),
		cmocka_unit_test_teardown(test_a_discard_whose_list_is_interrupted, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
