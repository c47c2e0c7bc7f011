/* Sizes as people read them.
 *
 * Trust domain: all C programs.
 */
#include <cellblock/size_text.h>

#include <stdio.h>

const char *cb_size_text(uint64_t bytes, char ret_text[CB_SIZE_TEXT])
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	size_t unit = 0;

	for (; value >= 1024; unit++) /* 2^64 is 16 of the last */
		value /= 1024;
	snprintf(ret_text, CB_SIZE_TEXT, "%.4g %s", value, units[unit]);
	return ret_text;
}
