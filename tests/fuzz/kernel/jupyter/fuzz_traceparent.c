/* Fuzz target: a request's metadata, for its traceparent. What is taken is 55 characters that may go anywhere. */
#include "jupyter/traceparent.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char got[CB_TRACEPARENT_SIZE];
	char again[CB_TRACEPARENT_SIZE];

	memset(got, 'x', sizeof(got));
	cb_traceparent_of((struct cb_span){ size > 0 ? (const char *)data : "", size }, got);
	if (got[0] == '\0')
		return 0;
	if (strlen(got) != sizeof(got) - 1 || strspn(got, "0123456789abcdef-") != sizeof(got) - 1 ||
	    strncmp(got, "00-", 3) != 0)
		abort();
	if (!cb_traceparent_parse(got, sizeof(got) - 1, again) || strcmp(got, again) != 0)
		abort();
	return 0;
}
