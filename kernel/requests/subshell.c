/* create_, delete_ and list_subshell_request (JEP 91), on control. Trust domain: supervisor.
 *
 * They are answered here, whatever Python does: a subshell begins in the guest with its first request.
 */
#include <cellblock/json_scan.h>

#include "kernel.h"
#include "requests.h"

void cb_reply_unknown_subshell(struct cb_kernel *k, struct cb_request *r, struct cb_span id)
{
	const char *epitaph = cb_branches_epitaph(k, id);
	CB_AUTO_BUF text = CB_BUF_INIT(256);

	if (epitaph != NULL) {
		cb_reply_error(k, r, "KernelDiedError", "this branch has ended: %s", epitaph);
		return;
	}
	if (cb_json_string_decode(id, &text) < 0) /* longer than any of ours */
		cb_buf_clear(&text);
	cb_reply_error(k, r, "UnknownSubshellError", "Unknown subshell_id '%.*s'", (int)text.len,
		       text.data != NULL ? (const char *)text.data : "");
}

void cb_request_create_subshell(struct cb_kernel *k, struct cb_request *r)
{
	const char *id = k->bash ? NULL : cb_lanes_create(k);
	char text[96];

	if (k->bash) {
		cb_reply_error(k, r, "SubshellError", "a kernel for cells of bash has no subshells");
		return;
	}
	if (id == NULL) {
		cb_reply_error(k, r, "SubshellError",
			       "there are %d subshells, and no more are made; delete one that is not used any more",
			       CB_SUBSHELLS_MAX);
		return;
	}
	int n = snprintf(text, sizeof(text), "{\"status\":\"ok\",\"subshell_id\":\"%s\"}", id);

	cb_reply(k, r, (struct cb_span){ text, (size_t)n });
}

void cb_request_delete_subshell(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "subshell_id", .types = CB_JSON_STRING, .required = true } };
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0)
		cb_reply_error(k, r, "MalformedRequestError", "delete_subshell_request: content: %s%s%s",
			       e.field != NULL ? e.field : "", e.field != NULL ? ": " : "", e.reason);
	else if (!cb_branches_delete(k, f[0].ret) && !cb_lanes_delete(k, f[0].ret))
		cb_reply_unknown_subshell(k, r, f[0].ret);
	else
		cb_reply(k, r, CB_SPAN("{\"status\":\"ok\"}"));
}

void cb_request_list_subshell(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(64 + CB_SUBSHELLS_MAX * 48u);
	const char *comma = "";
	int c = cb_buf_append_str(&b, "{\"status\":\"ok\",\"subshell_id\":[");

	for (size_t i = 0; i < CB_SUBSHELLS_MAX && c == 0; i++) {
		if (k->lanes.sub[i].id[0] == '\0')
			continue;
		c = cb_buf_printf(&b, "%s\"%s\"", comma, k->lanes.sub[i].id);
		comma = ",";
	}
	if (c == 0 && cb_buf_append_str(&b, "]}") == 0)
		cb_reply(k, r, cb_buf_span(&b));
	else
		cb_reply_error(k, r, "MemoryError", "no memory to list the subshells");
}
