/* Busy, idle and errors of requests.
 *
 * Trust domain: supervisor. Invariant: what is said of a request goes out between its busy and its idle.
 */
#include "status.h"

#include <cellblock/log.h>
#include <stdarg.h>

#include "jupyter.h"

#define RED "\033[31m"
#define PLAIN "\033[0m"

void cb_bracket_begin(struct cb_jupyter *jp, const struct cb_request *r)
{
	if (!r->announced || !jp->iopub.busy)
		cb_iopub_status(jp, "busy", r->header);
}

void cb_bracket_end(struct cb_jupyter *jp, const struct cb_request *r)
{
	cb_iopub_status(jp, "idle", r->header);
	cb_busy_again(jp);
}

void cb_bracket_close(struct cb_jupyter *jp, struct cb_request *r)
{
	cb_bracket_end(jp, r);
	cb_request_free(r);
}

void cb_busy_again(struct cb_jupyter *jp)
{
	const struct cb_request *r = jp->events->at_work(jp->kernel);

	if (r != NULL)
		cb_iopub_status(jp, "busy", r->header);
}

void cb_refuse(struct cb_jupyter *jp, struct cb_request *r, const char *ename, const char *format, ...)
{
	char evalue[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(evalue, sizeof(evalue), format, ap);
	va_end(ap);
	cb_bracket_begin(jp, r);
	if (cb_request_is_comm(r))
		cb_log(CB_LOG_WARNING, "%s: a message to a widget is dropped: %s", r->type, evalue);
	else
		cb_reply_error(jp, r, ename, "%s", evalue);
	cb_bracket_close(jp, r);
}

void cb_write_error(struct cb_json *j, const char *ename, const char *evalue, struct cb_span traceback)
{
	CB_AUTO_BUF line = CB_BUF_INIT(4096);

	(void)cb_buf_printf(&line, RED "%s" PLAIN ": %s", ename, evalue);
	cb_json_put(j, "ename", ename, "evalue", evalue);
	cb_json_array(j, "traceback");
	/* the guest's lines first, the verdict last, as Python does; "[ ]" holds none */
	if (traceback.len > 0 && memchr(traceback.data, '"', traceback.len) != NULL)
		cb_json_put_raw(j, NULL, (struct cb_span){ traceback.data + 1, traceback.len - 2 });
	cb_json_put_text(j, NULL, (const char *)line.data, line.len);
	cb_json_end(j);
}

void cb_publish_error(struct cb_jupyter *jp, const struct cb_request *r, const char *ename, const char *evalue,
		      struct cb_span traceback)
{
	CB_AUTO_BUF b = CB_BUF_INIT(traceback.len + 65536);
	struct cb_json j = cb_json_begin(&b);

	cb_write_error(&j, ename, evalue, traceback);
	(void)cb_json_done(&j);
	/* a big one may be given up when nobody reads, as the guest's own are */
	cb_iopub_content(jp, "error", b.len <= CB_MESSAGE_SMALL ? CB_WEIGHT_KEEP : CB_WEIGHT_DATA, r->header,
			 cb_buf_span(&b));
}
