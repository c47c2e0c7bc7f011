/* Text that a terminal shows and does nothing else by. */
#include <cellblock/visible.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void same(const char *text)
{
	char *copy = cb_visible_copy(text);

	assert_non_null(copy);
	assert_string_equal(copy, text);
	free(copy);
}

static void becomes(const char *text, const char *expected)
{
	char *copy = cb_visible_copy(text);

	assert_non_null(copy);
	assert_string_equal(copy, expected);
	free(copy);
}

static void test_words_stay(void **state)
{
	(void)state;
	same("");
	same("data/a b.csv");
	same("\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8d \xd7\xa9");
}

static void test_what_acts_is_escaped(void **state)
{
	(void)state;
	becomes("\x1b[31m", "\\x1b[31m");
	becomes("a\nb\tc\rd\x7f", "a\\x0ab\\x09c\\x0dd\\x7f");
	becomes("\xc2\x9b", "\\xc2\\x9b");			     /* CSI in one character */
	becomes("\xe2\x80\xae", "\\xe2\\x80\\xae");		     /* U+202E: right to left from here */
	becomes("\xe2\x81\xa6", "\\xe2\\x81\\xa6");		     /* U+2066 */
	becomes("\xd8\x9c", "\\xd8\\x9c");			     /* U+061C */
	becomes("\xe2\x80\x8b", "\\xe2\\x80\\x8b");		     /* U+200B: nothing to see */
	becomes("\xef\xbb\xbf", "\\xef\\xbb\\xbf");		     /* U+FEFF */
	becomes("\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81");	     /* U+E0041: a tag */
	becomes("\xff\xc3(\xed\xa0\x80", "\\xff\\xc3(\\xed\\xa0\\x80"); /* no UTF-8 */
}

static void test_cut_after_a_whole_character(void **state)
{
	char out[8];

	(void)state;
	assert_int_equal(cb_visible("abc\x1b", 4, out, sizeof(out)), 7);
	assert_string_equal(out, "abc\\x1b");
	assert_int_equal(cb_visible("abcd\x1b", 5, out, sizeof(out)), 4);
	assert_string_equal(out, "abcd");
	assert_int_equal(cb_visible("x\0y", 3, out, sizeof(out)), 6);
	assert_string_equal(out, "x\\x00y");
	assert_int_equal(cb_visible("x", 1, out, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_stay),
		cmocka_unit_test(test_what_acts_is_escaped),
		cmocka_unit_test(test_cut_after_a_whole_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
