/* timeout.idle: who looks at it while the jail is in use looks again. */
#include "shells/idle.h"

#include "rig.h"

static bool was_looked_at(struct rig *r)
{
	return !cb_loop_armed(&r->k.loop, r->k.shells.idle.timer) || r->k.shells.idle.since > 0;
}

/* Not every end of a use says so. */
static void test_in_use(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_idle *i = &r->k.shells.idle;

	assert_true(r->k.jupyter.iopub.connected.n > 0);
	i->limit = 3600 * 1000000000LL;
	i->since = 0;
	cb_loop_arm(&r->k.loop, i->timer, cb_now_ns());
	rig_until(r, was_looked_at);
	assert_true(cb_loop_armed(&r->k.loop, i->timer));
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_in_use, rig_teardown) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
