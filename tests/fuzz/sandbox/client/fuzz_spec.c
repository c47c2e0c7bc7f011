/* The decoder of jail descriptions: what it accepts passes the check and encodes to the same bytes again. */
#include <cellblock/buffer.h>
#include <cellblock/sandbox.h>

#include "../../../../sandbox/client/spec_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cb_jail_spec spec = { 0 };
	CB_AUTO_BUF again = CB_BUF_INIT(CB_SPEC_MAX);

	if (cb_jail_spec_decode(data, size, &spec, NULL) < 0)
		return 0;
	if (cb_jail_spec_encode(&spec, &again) < 0 || again.len != size || memcmp(again.data, data, size) != 0)
		abort();
	cb_jail_spec_release(&spec);
	return 0;
}
