/* How far a launch has got: see launch_trace.h. Trust domain: broker and pid 1. */
#include "launch_trace.h"

#include <cellblock/clock.h>
#include <cellblock/log.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define MARKS_MAX 32

/* Written by whoever builds at the moment, read by the broker. A page of its own, shared until the guest's exec. */
struct trace {
	unsigned count;
	struct {
		char phase[32];
		int64_t ns;
	} mark[MARKS_MAX];
};
static struct trace *trace;

void cb_launch_mark(const char *phase)
{
	if (trace == NULL || trace->count >= MARKS_MAX)
		return;
	snprintf(trace->mark[trace->count].phase, sizeof(trace->mark[0].phase), "%s", phase);
	trace->mark[trace->count].ns = cb_now_ns();
	trace->count++;
}

int cb_launch_trace_start(void)
{
	if (trace == NULL) {
		void *page = mmap(NULL, sizeof(*trace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			return -errno;
		trace = page;
	}
	trace->count = 0;
	return 0;
}

const char *cb_launch_phase(void)
{
	return trace->count > 0 ? trace->mark[trace->count - 1].phase : "start";
}

void cb_launch_log(void)
{
	char line[1024];
	int n = 0;

	if (cb_log_level() < CB_LOG_DEBUG)
		return;
	for (unsigned i = 0; i + 1 < trace->count && n >= 0 && (size_t)n < sizeof(line); i++)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "%s%s %.2f", i > 0 ? ", " : "", trace->mark[i].phase,
			      (double)(trace->mark[i + 1].ns - trace->mark[i].ns) / 1e6);
	cb_log(CB_LOG_DEBUG, "launch took %.2f ms: %s",
	       (double)(trace->mark[trace->count - 1].ns - trace->mark[0].ns) / 1e6, line);
}
