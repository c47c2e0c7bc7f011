/* The answer to a request whose content is not what its type needs: an error reply, never silence; of a cell also an
 * `error` below it, for frontends show nothing of a reply. Trust domain: supervisor. Called by other requests and
 * channels.c. */
#include <stdarg.h>

#include "jupyter/channels.h"
#include "jupyter/iopub.h"
#include "jupyter/router.h"
#include "records/audit_events.h"
#include "requests.h"
#include "shells/failure.h"

void cb_request_malformed(struct cb_kernel *k, struct cb_request *r, const char *format, ...)
{
	static const char ename[] = "MalformedRequestError";
	char text[512], evalue[sizeof(text) + 64];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	snprintf(evalue, sizeof(evalue), "%.60s: %s", r->type, text);
	cb_audit_denied(k, r->type, text);
	cb_bracket_begin(k, r);
	if (cb_request_is_execute(r)) {
		cb_failure_publish(k, r, ename, evalue, (struct cb_span){ NULL, 0 });
		cb_iopub_flush(k);
	}
	cb_reply_error(k, r, ename, "%s", evalue);
	cb_bracket_end(k, r);
}
