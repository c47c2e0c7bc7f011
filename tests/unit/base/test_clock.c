/* The monotonic clock goes on, and its two units agree. */
#include <cellblock/clock.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_goes_on(void **state)
{
	int64_t ms = cb_now_ms(), first = cb_now_ns(), second = cb_now_ns();

	(void)state;
	assert_true(first > 0 && second >= first);
	assert_true(first / 1000000 >= ms && cb_now_ms() >= second / 1000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_goes_on) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
