/* Log lines that others cause at will, without a key or from a jail: so many a second. Trust domain: supervisor. */
#pragma once

#include <cellblock/clock.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_LOG_LINES_A_SECOND 50

struct cb_log_limit {
	int64_t since; /* monotonic */
	unsigned lines;
};

/* Counts one; whether it may be written. */
static inline bool cb_log_limit(struct cb_log_limit *l)
{
	int64_t now = cb_now_ns();

	if (now - l->since > 1000000000LL)
		*l = (struct cb_log_limit){ .since = now };
	return l->lines++ < CB_LOG_LINES_A_SECOND;
}
