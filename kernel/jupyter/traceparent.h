/* `traceparent` of W3C Trace Context, as a client sends it in metadata.cellblock. Trust domain: supervisor.
 *
 * It is a mark that the client puts on a request, so that the audit log and the reply can be matched with its traces.
 * Nothing here or elsewhere decides by it, and cells are not told of it.
 */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>

#define CB_TRACEPARENT_SIZE 56 /* 55 characters of version 00, and a NUL */

/* Whether the text is a traceparent; it is given in the form of version 00. What is not one is ignored, as the
 * specification has it; of a version from the future the parts that version 00 has are taken. */
bool cb_traceparent_parse(const char *text, size_t len, char ret[CB_TRACEPARENT_SIZE]);

/* That of a request's metadata; "" where there is none, or none that is one. Metadata is not scanned yet. */
void cb_traceparent_of(struct cb_span metadata, char ret[CB_TRACEPARENT_SIZE]);
