/* See request_kind.h. Trust domain: supervisor. Caller: message.c. */
#include "request_kind.h"

#include <stddef.h>
#include <string.h>

enum cb_request_kind cb_request_kind_of(const char *type)
{
	static const struct {
		const char *type;
		enum cb_request_kind kind;
	} known[] = {
#define CB_X(name, text) { text, CB_REQUEST_##name },
		CB_REQUEST_KINDS(CB_X)
#undef CB_X
	};

	for (size_t i = 0; i < CB_COUNT(known); i++)
		if (strcmp(known[i].type, type) == 0)
			return known[i].kind;
	return CB_REQUEST_OTHER;
}
