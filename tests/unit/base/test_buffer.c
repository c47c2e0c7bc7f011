/* The growing buffer: its ceiling at the edge, and that a refused append has no effect. */
#include <cellblock/buffer.h>
#include <cellblock/error.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_append_up_to_max(void **state)
{
	(void)state;
	for (size_t max = 0; max < 1100; max += 99) {
		CB_AUTO_BUF b = CB_BUF_INIT(max);

		for (size_t i = 0; i < max; i++) {
			uint8_t byte = (uint8_t)i;

			assert_int_equal(cb_buf_append(&b, &byte, 1), 0);
			assert_true(b.len <= b.cap && b.cap <= b.max);
		}
		assert_int_equal(b.len, max);
		assert_int_equal(cb_buf_append(&b, "x", 1), CB_E_TOO_BIG);
		assert_int_equal(cb_buf_printf(&b, "x"), CB_E_TOO_BIG);
		assert_int_equal(cb_buf_append(&b, NULL, 0), 0);
		assert_int_equal(b.len, max);
		for (size_t i = 0; i < max; i++)
			assert_int_equal(b.data[i], (uint8_t)i);
	}
}

static void test_huge_requests(void **state)
{
	CB_AUTO_BUF b = CB_BUF_INIT(SIZE_MAX);

	(void)state;
	assert_int_equal(cb_buf_append_str(&b, "abc"), 0);
	assert_int_equal(cb_buf_reserve(&b, SIZE_MAX), CB_E_TOO_BIG);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "abc", 3);
}

static void test_printf(void **state)
{
	CB_AUTO_BUF b = CB_BUF_INIT(600);

	(void)state;
	assert_int_equal(cb_buf_printf(&b, "%d-%s", 7, "x"), 0);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "7-x", 3);
	assert_int_equal(cb_buf_printf(&b, "%0597d", 0), 0); /* longer than the small buffer, up to max */
	assert_int_equal(b.len, 600);
	assert_int_equal(b.data[599], '0');
	assert_int_equal(cb_buf_printf(&b, "%s", ""), 0);
	assert_int_equal(cb_buf_printf(&b, "%0999d", 0), CB_E_TOO_BIG);
	assert_int_equal(b.len, 600);
}

static void test_consume_and_clear(void **state)
{
	CB_AUTO_BUF b = CB_BUF_INIT(100);

	(void)state;
	assert_int_equal(cb_buf_append_str(&b, "abcdef"), 0);
	cb_buf_consume(&b, 0);
	cb_buf_consume(&b, 2);
	assert_int_equal(b.len, 4);
	assert_memory_equal(b.data, "cdef", 4);
	cb_buf_consume(&b, 4);
	assert_int_equal(b.len, 0);
	assert_int_equal(cb_buf_append_str(&b, "x"), 0);
	cb_buf_clear(&b);
	assert_int_equal(b.len, 0);
}

static void test_release(void **state)
{
	struct cb_buf b = CB_BUF_INIT(100);

	(void)state;
	cb_buf_release(NULL);
	cb_buf_release(&b);
	assert_int_equal(cb_buf_append_str(&b, "x"), 0);
	cb_buf_release(&b);
	cb_buf_release(&b);
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
	assert_int_equal(b.max, 100);
}

static void test_span(void **state)
{
	(void)state;
	assert_true(cb_span_is(CB_SPAN("ab"), "ab"));
	assert_true(cb_span_is(CB_SPAN(""), ""));
	assert_false(cb_span_is(CB_SPAN("ab"), "abc"));
	assert_false(cb_span_is((struct cb_span){ 0 }, ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_append_up_to_max),  cmocka_unit_test(test_huge_requests),
		cmocka_unit_test(test_printf),            cmocka_unit_test(test_consume_and_clear),
		cmocka_unit_test(test_release),           cmocka_unit_test(test_span),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
