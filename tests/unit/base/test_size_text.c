/* Sizes for people: whole numbers of a unit are exact, others have four digits. */
#include <cellblock/size_text.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_forms(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} sizes[] = {
		{ 0, "0 bytes" },
		{ 1023, "1023 bytes" },
		{ 1024, "1 KiB" },
		{ 1536, "1.5 KiB" },
		{ 1000u << 20, "1000 MiB" },
		{ 1300u << 20, "1.27 GiB" },
		{ 1000000000, "953.7 MiB" },
		{ 3ull << 40, "3 TiB" },
		{ 5ull << 52, "20 PiB" },
		{ UINT64_MAX, "16 EiB" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char text[CB_SIZE_TEXT];

		assert_ptr_equal(cb_size_text(sizes[i].bytes, text), text);
		assert_string_equal(text, sizes[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_forms) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
