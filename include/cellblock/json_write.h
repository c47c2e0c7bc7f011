/* Writing JSON text into a buffer. */
#pragma once

#include <cellblock/buffer.h>

/* Appends `text` as a JSON string with quotes. Invalid UTF-8 becomes U+FFFD, control characters are escaped. */
int cb_json_write_string(struct cb_buf *out, const char *text, size_t len);
int cb_json_write_cstr(struct cb_buf *out, const char *text);
/* The same without the surrounding quotes, for text that is written piece by piece. */
int cb_json_write_escaped(struct cb_buf *out, const char *text, size_t len);
/* Length of the longest prefix of text[0..len) that does not end in the middle of a UTF-8 sequence (at most 3 bytes
 * short). */
size_t cb_utf8_complete_prefix(const char *text, size_t len);
