/* What the guest's fds 1 and 2 and its log bring.
 *
 * Trust domain: supervisor; all of it is hostile. When clients don't keep up nothing more is read, so that the guest
 * has to wait; but of one that starts or wakes, which may say no more than that it serves, and is given up if it does
 * not.
 */
#include "guest_output.h"

#include <cellblock/log.h>
#include <errno.h>
#include <unistd.h>

#include "guest.h"
#include "jupyter/iopub.h"
#include "jupyter/loop.h"

#define MS 1000000LL

void cb_guest_pause_if_congested(struct cb_guest *g)
{
	short events = cb_iopub_congested(g->jupyter) ? 0 : ZMQ_POLLIN;
	bool begins = (g->python.rules.phase & (CB_PHASE_STARTING | CB_PHASE_WAKING)) != 0;

	for (int i = 0; i < 2; i++)
		cb_loop_set_events(g->loop, g->out_slot[i], events);
	if (g->link_slot >= 0)
		cb_loop_set_events(g->loop, g->link_slot,
				   (short)((begins ? ZMQ_POLLIN : events) |
					   (cb_guest_link_events(&g->python.link) & ZMQ_POLLOUT)));
	if (events == 0)
		cb_loop_arm(g->loop, g->resume_timer, cb_now_ns() + 5 * MS);
}

void cb_guest_on_resume(void *context)
{
	cb_guest_pause_if_congested(context);
}

static void on_output(struct cb_guest *g, int i)
{
	if (cb_output_read(&g->python.output, i) < 0)
		cb_loop_remove(g->loop, &g->out_slot[i]);
	cb_guest_pause_if_congested(g);
}

void cb_guest_on_stdout(void *context, short revents)
{
	(void)revents;
	on_output(context, 0);
}

void cb_guest_on_stderr(void *context, short revents)
{
	(void)revents;
	on_output(context, 1);
}

void cb_guest_on_log(void *context, short revents)
{
	struct cb_guest *g = context;
	char text[4096];
	ssize_t n = read(g->log, text, sizeof(text) - 1);

	(void)revents;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		cb_loop_remove(g->loop, &g->log_slot);
	if (n <= 0)
		return;
	text[n] = '\0';
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
		if (cb_log_limit(&g->log_limit))
			cb_log(CB_LOG_INFO, "guest: %s", line);
}
