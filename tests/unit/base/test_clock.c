/* The monotonic clock goes on, its two units agree; a thread's processor time. */
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

/* A thread's own time passes with its work, and never faster than the clock. */
static void test_of_a_thread(void **state)
{
	int64_t began = cb_now_ns(), first = cb_now_thread_ns(), now;

	(void)state;
	do
		now = cb_now_thread_ns();
	while (now == first);
	assert_true(now > first && now - first <= cb_now_ns() - began);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goes_on),
		cmocka_unit_test(test_of_a_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
