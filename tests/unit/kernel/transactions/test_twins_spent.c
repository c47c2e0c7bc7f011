/* What twins take of the processors, which is not the cells' time. */
#include "rig_twins.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

static void spend(double seconds)
{
	struct timespec t;

	do {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < seconds);
}

/* Of a dropped one's time only the end is no cell's: what it does before may be anything. */
static void test_an_end_is_no_cells_time(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	bool ending = false;
	int begun[2];
	char byte;

	assert_int_equal(pipe(begun), 0);
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		spend(0.1);
		(void)!write(begun[1], "", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(begun[0], &byte, 1), 1);
	struct cb_twin *dropped = cb_twins_find(&r->k.transactions.twins, t.number);

	assert_non_null(dropped);
	dropped->pid = pid;
	cb_twins_drop(&r->k.transactions, dropped);
	assert_true(cb_twins_spent(&r->k.transactions, &ending) == 0 && ending);
	r->k.transactions.twins.ending[0].cpu_s = 0; /* as if it had done all that since the last look */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_true(cb_twins_spent(&r->k.transactions, &ending) >= 0.09 && ending);
	assert_true(cb_twins_spent(&r->k.transactions, &ending) == 0 && ending);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(cb_twins_spent(&r->k.transactions, &ending) == 0 && !ending);
	close(begun[0]);
	close(begun[1]);
	rig_twin_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_an_end_is_no_cells_time, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
