/* Ends a jail that keeps a look at it waiting. Trust domain: broker, outside. See guard.c. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct cb_guard {
	unsigned tick_ms; /* between two ticks of the guard */
	unsigned most;	  /* ticks in which one and the same look goes on, and then its jail is ended */
	/* the rest is guard.c's */
	pthread_mutex_t lock;
	unsigned turn; /* odd while a look goes on */
	int pidfd;
	bool started, fired;
};

/* Without namespaces nobody's end is that of all: who has the guard ends, and pid 1, which sees that, ends the
 * others. */
#define CB_GUARD_ENDS_US (-1)

/* A look begins at the jail whose pid 1 this is, or CB_GUARD_ENDS_US. Its thread starts with the first; where it
 * can't, none guards, and the next look tries again. */
void cb_guard_begin(struct cb_guard *g, int pidfd);
/* It is over. True if its jail had to be ended. */
bool cb_guard_end(struct cb_guard *g);
