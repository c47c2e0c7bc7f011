/* Connection files: whatever the text, an error with words or a connection that keeps the header's promises. */
#include "setup/connection_file.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cb_connection c;
	struct cb_err err = { 0 };

	if (cb_connection_parse("/run/kernel.json", (const char *)data, size, &c, &err) < 0) {
		if (err.text[0] == '\0')
			abort();
		return 0;
	}
	if (c.path == NULL || c.ip == NULL || c.key == NULL || c.digest == NULL || strlen(c.key) != c.key_len ||
	    c.key_len > CB_KEY_MAX)
		abort();
	for (int i = 0; i < CB_NCHANNELS; i++) {
		if (c.port[i] < 0 || c.port[i] > 65535)
			abort();
	}
	if ((c.curve_public[0] == '\0') != (c.curve_secret[0] == '\0'))
		abort();
	cb_connection_release(&c);
	return 0;
}
