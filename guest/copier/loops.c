/* asyncio's loops that run, in a copy of the process.
 *
 * Trust domain: guest. Until Python 3.11 asyncio notes for each thread the loop that runs there, and with it the number
 * of the process: in another one none runs. So who is in the middle of a callback would not find its loop in a copy.
 * Python says where these numbers stand, and in a woken copy they are changed before any thread goes on.
 *
 * Invariants: Python is asked while its lock is held and before any thread stops, so what it says stays true; its
 * collector does not run. Source: CPython's Modules/_asynciomodule.c, PyRunningLoopHolder.
 */
#include "copier.h"
#include "parts.h"

#include <errno.h>

#include "sys.h"

static int *marks[CB_COPIER_LOOPS_MAX];
static size_t nmarks;

static void *pointer(int64_t number)
{
	return (void *)(uintptr_t)number;
}

int cb_loops_note(const int64_t *how)
{
	void *(*first)(void *) = (void *(*)(void *))pointer(how[CB_COPIER_LOOP_FIRST]);
	void *(*next)(void *) = (void *(*)(void *))pointer(how[CB_COPIER_LOOP_NEXT]);
	void *(*dict_of)(void *) = (void *(*)(void *))pointer(how[CB_COPIER_LOOP_DICT]);
	void *(*item)(void *, void *) = (void *(*)(void *, void *))pointer(how[CB_COPIER_LOOP_ITEM]);
	int process = (int)cb_sys0(SYS_getpid);

	nmarks = 0;
	if (first == NULL)
		return 0;
	for (void *t = first(pointer(how[CB_COPIER_LOOP_INTERPRETER])); t != NULL; t = next(t)) {
		void *dict = dict_of(t);
		char *holder = dict != NULL ? item(dict, pointer(how[CB_COPIER_LOOP_KEY])) : NULL;
		int *mark = holder != NULL ? (int *)(void *)(holder + how[CB_COPIER_LOOP_OFFSET]) : NULL;

		if (mark == NULL || *mark != process)
			continue;
		if (nmarks == CB_COPIER_LOOPS_MAX)
			return -E2BIG;
		marks[nmarks++] = mark;
	}
	return 0;
}

void cb_loops_mark(void)
{
	int process = (int)cb_sys0(SYS_getpid);

	for (size_t i = 0; i < nmarks; i++)
		*marks[i] = process;
}
