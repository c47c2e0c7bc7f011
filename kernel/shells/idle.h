/* timeout.idle: the jail ends when nobody has wanted anything for a while. Trust domain: supervisor. See idle.c. */
#pragma once

#include <stdint.h>

struct cb_kernel;

struct cb_idle {
	int64_t since; /* monotonic ns of the last sign of interest */
	int timer;
};

int cb_idle_init(struct cb_kernel *k);
/* A request came or ended, a subscriber came or went. */
void cb_idle_touch(struct cb_kernel *k);
