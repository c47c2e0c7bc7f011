/* `cellblock changes`, `commit`, `discard`: what an overlay workspace of a running kernel changed.
 *
 * Role: asks the kernel with its own connection file and prints the answer, one line an entry. Trust domain:
 * supervisor's program. Names in the answer were chosen by hostile code: they are printed so that they do a terminal
 * no harm. Exit status: 1 also if something could not be written through.
 */
#include <cellblock/json_write.h>
#include <cellblock/visible.h>
#include <jansson.h>

#include "ask_kernel.h"
#include "command.h"

#define REPLY_MAX (16u << 20)

static void print_entry(const json_t *e)
{
	const char *path = json_string_value(json_object_get(e, "path"));
	const char *change = json_string_value(json_object_get(e, "change"));
	const char *type = json_string_value(json_object_get(e, "type"));
	const char *reason = json_string_value(json_object_get(e, "reason"));

	if (path == NULL || change == NULL || type == NULL)
		return;
	printf("%-9s %s%s", cb_shown(change), cb_shown(path), strcmp(type, "folder") == 0 ? "/" : "");
	if (reason != NULL)
		printf("  (%s)", cb_shown(reason));
	putchar('\n');
}

static long long count(const json_t *reply, const char *name)
{
	return json_integer_value(json_object_get(reply, name));
}

static int print_reply(const struct cb_options *o, const char *kernel, const struct cb_buf *text, struct cb_err *err)
{
	json_auto_t *reply = json_loadb((const char *)text->data, text->len, JSON_ALLOW_NUL, NULL);
	const char *status = json_string_value(json_object_get(reply, "status"));
	const char *why = json_string_value(json_object_get(reply, "evalue"));
	const json_t *list = json_object_get(reply, "changes");
	bool ok = status != NULL && strcmp(status, "ok") == 0;

	if (!ok)
		(void)cb_err_set(err, CB_E_DENIED, "workspace", NULL, "%s",
				 why != NULL ? why : "the kernel's answer makes no sense");
	if (!ok && list == NULL) /* else it was interrupted, and what was done is told first */
		return err->code;
	if (o->json) {
		json_dumpf(reply, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII);
		putchar('\n');
	}
	for (size_t i = 0; !o->json && i < json_array_size(list); i++)
		print_entry(json_array_get(list, i));
	if (!o->json && json_is_true(json_object_get(reply, "truncated")))
		printf("… and more\n");
	fflush(stdout);
	fprintf(stderr, "kernel %s: %s%lld added, %lld modified, %lld deleted, %lld skipped, %lld failed\n",
		cb_shown(kernel),
		strcmp(o->command, "commit") == 0    ? "written to the workspace: "
		: strcmp(o->command, "discard") == 0 ? "dropped, and Python with its variables restarted: "
						     : "",
		count(reply, "added"), count(reply, "modified"), count(reply, "deleted"), count(reply, "skipped"),
		count(reply, "failed"));
	if (!ok)
		return err->code;
	return count(reply, "failed") > 0 ? 1 : 0;
}

int cb_command_changes(const struct cb_options *o)
{
	CB_AUTO_BUF reply = CB_BUF_INIT(REPLY_MAX);
	struct cb_err err = { 0 };
	CB_JSON_SMALL(content, "op", o->command);
	char *file = NULL, *name = NULL;
	int r = cb_kernel_file(o->kernel, &file, &name, &err);

	if (r == 0)
		r = cb_kernel_ask(file, "cellblock_file_request", cb_buf_span(&content), &reply, &err);
	if (r == 0)
		r = print_reply(o, name, &reply, &err);
	free(file);
	free(name);
	return r < 0 ? cb_command_fail(o->command, &err) : r;
}
