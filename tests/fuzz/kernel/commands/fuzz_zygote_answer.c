/* What a zygote tells of itself: whatever it is, numbers are none or not negative, texts end and are visible. */
#include "commands/ask_zygote.h"

#include <cellblock/visible.h>
#include <stdbool.h>

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void must_be_visible(const char *text, size_t size)
{
	static char again[8192];
	size_t n = strnlen(text, size);

	must(n < size && size <= sizeof(again));
	must(cb_visible(text, n, again, sizeof(again)) == n && memcmp(text, again, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cb_zygote z;
	char *copy = malloc(size > 0 ? size : 1); /* of its very size: a read past its end is seen */

	must(copy != NULL);
	if (size > 0)
		memcpy(copy, data, size);
	z = (struct cb_zygote){ .age = -1, .living = -1, .made = -1 };
	(void)cb_zygote_read(&z, copy, size);
	must(z.age >= -1 && z.living >= -1 && z.made >= -1);
	must_be_visible(z.python, sizeof(z.python));
	must_be_visible(z.preloaded, sizeof(z.preloaded));
	free(copy);
	return 0;
}
