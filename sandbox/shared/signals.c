/* Signals before an exec: see signals.h. Trust domain: inside the jail. */
#include "signals.h"

#include <signal.h>
#include <stddef.h>

void cb_default_signals(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		(void)sigaction(number, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}
