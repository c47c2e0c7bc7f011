/* create_, delete_ and list_subshell_request (JEP 91), on control. Trust domain: supervisor.
 *
 * They are answered here, whatever Python does: a subshell begins in the guest with its first request.
 */
#include <cellblock/json_scan.h>

#include "kernel.h"
#include "requests.h"

void cb_request_create_subshell(struct cb_kernel *k, struct cb_request *r)
{
	const char *id = k->shells.bash ? NULL : cb_lanes_create(&k->shells);

	if (k->shells.bash) {
		cb_reply_error(&k->jupyter, r, "SubshellError", "a kernel for cells of bash has no subshells");
		return;
	}
	if (id == NULL) {
		cb_reply_error(&k->jupyter, r, "SubshellError",
			       "there are %d subshells, and no more are made; delete one that is not used any more",
			       CB_SUBSHELLS_MAX);
		return;
	}
	cb_reply_ok(&k->jupyter, r, "subshell_id", id);
}

void cb_request_delete_subshell(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "subshell_id", .types = CB_JSON_STRING, .required = true } };
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0)
		cb_reply_error(&k->jupyter, r, "MalformedRequestError", "delete_subshell_request: content: %s%s%s",
			       e.field != NULL ? e.field : "", e.field != NULL ? ": " : "", e.reason);
	else if (!cb_branches_delete(&k->transactions, f[0].ret) && !cb_lanes_delete(&k->shells, f[0].ret))
		cb_branches_unknown(&k->transactions, r, f[0].ret);
	else
		cb_reply_ok(&k->jupyter, r);
}

void cb_request_list_subshell(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(64 + CB_SUBSHELLS_MAX * 48u);
	struct cb_json j = cb_json_begin(&b);

	cb_json_put(&j, "status", "ok");
	cb_json_array(&j, "subshell_id");
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (k->shells.lanes.sub[i].id[0] != '\0')
			cb_json_put(&j, NULL, k->shells.lanes.sub[i].id);
	cb_reply_json(&k->jupyter, r, &j);
}
