/* The hash chain of the audit log. See records/chain.h.
 *
 * Trust domain: supervisor; cb_audit_check reads files that anybody may have changed. Invariants: no state; a line is
 * never longer than CB_AUDIT_LINE_MAX.
 */
#include "chain.h"

#include <cellblock/error.h>
#include <cellblock/json_write.h>
#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>

int cb_audit_hash(const void *data, size_t len, char ret_hash[CB_AUDIT_HASH])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	if (EVP_Digest(data, len, digest, &n, EVP_sha256(), NULL) != 1 || 2 * n + 1 != CB_AUDIT_HASH)
		return -EIO;
	for (unsigned i = 0; i < n; i++)
		snprintf(ret_hash + 2 * (size_t)i, 3, "%02x", digest[i]);
	return 0;
}

int cb_audit_seal(struct cb_span members, const char *prev, struct cb_buf *line)
{
	struct cb_json j = cb_json_begin(line);
	int r;

	cb_json_put_raw(&j, NULL, members);
	cb_json_put(&j, "prev", prev);
	r = cb_json_done(&j);
	return r < 0 ? r : cb_buf_append_str(line, "\n");
}

int cb_audit_check(const char *line, size_t len, const char *prev, char *ret_reason, size_t size)
{
	static const char *const texts[] = { "time", "kernel", "event" };
	json_error_t where;
	json_auto_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
	const char *found = json_string_value(json_object_get(root, "prev"));
	int r = 0;

	if (!json_is_object(root)) {
		snprintf(ret_reason, size, "no JSON object: it was cut or written by something else");
		r = CB_E_SYNTAX;
	}
	for (size_t i = 0; i < CB_COUNT(texts) && r == 0; i++) {
		if (json_string_value(json_object_get(root, texts[i])) != NULL)
			continue;
		snprintf(ret_reason, size, "no \"%s\": it was changed or written by something else", texts[i]);
		r = CB_E_SYNTAX;
	}
	if (r == 0 && (found == NULL || strcmp(found, prev) != 0)) {
		if (strcmp(prev, CB_AUDIT_NO_LINE) == 0)
			snprintf(ret_reason, size, "the chain does not begin here: lines before it were taken out");
		else
			snprintf(ret_reason, size,
				 "the chain is broken: the line before it was changed or added, or lines between them "
				 "were taken out");
		r = CB_E_DENIED;
	}
	return r;
}
