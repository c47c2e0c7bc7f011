/* The hash chain of the audit log: how a line is closed, and how it is checked. Trust domain: supervisor.
 *
 * A log is JSON Lines. Each line ends with "prev", the SHA-256 of the line before it (without its newline), so that a
 * line that is changed, added or taken out breaks the chain at the line behind it. The first line has NO_LINE there.
 * Who can write the file can also write a new chain: keep the last hash elsewhere, or the file where only root can
 * write.
 */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_AUDIT_HASH 65 /* bytes of a hash in hex, with NUL */
#define CB_AUDIT_LINE_MAX 4096
#define CB_AUDIT_NO_LINE "0000000000000000000000000000000000000000000000000000000000000000"

/* SHA-256 in hex. */
int cb_audit_hash(const void *data, size_t len, char ret_hash[CB_AUDIT_HASH]);
/* Appends the line of an object with these members (JSON text) and "prev". */
int cb_audit_seal(struct cb_span members, const char *prev, struct cb_buf *line);
/* Whether a line (without newline) is a JSON object with text in "time", "kernel" and "event", and with `prev` in
 * "prev". If not, what is wrong with it. */
int cb_audit_check(const char *line, size_t len, const char *prev, char *ret_reason, size_t size);
