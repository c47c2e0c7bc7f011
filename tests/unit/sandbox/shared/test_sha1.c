/* SHA-1 against what FIPS 180 gives as examples, and each way to end in a block. */
#include "../../../../sandbox/shared/sha1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *data, size_t n, const char *expected)
{
	unsigned char sum[CB_SHA1];
	char text[2 * CB_SHA1 + 1];

	cb_sha1(data, n, sum);
	for (size_t i = 0; i < CB_SHA1; i++)
		snprintf(text + 2 * i, 3, "%02x", sum[i]);
	assert_string_equal(text, expected);
}

static void test_examples(void **state)
{
	char *many = malloc(1000000);

	(void)state;
	assert_non_null(many);
	memset(many, 'a', 1000000);
	check("", 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
	check("abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
	check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
	      "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
	check(many, 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
	check(many, 55, "c1c8bbdc22796e28c0e15163d20899b65621d65a");
	check(many, 56, "c2db330f6083854c99d4b5bfb6e8f29f201be699");
	check(many, 63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5");
	check(many, 64, "0098ba824b5c16427bd7a1122a5a442a25ec644d");
	check(many, 65, "11655326c708d70319be2610e8a57d9a5b959d3b");
	check(many, 119, "ee971065aaa017e0632a8ca6c77bb3bf8b1dfc56");
	check(many, 120, "f34c1488385346a55709ba056ddd08280dd4c6d6");
	check(many, 128, "ad5b3fdbcb526778c2839d2f151ea753995e26a0");
	free(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_examples) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
