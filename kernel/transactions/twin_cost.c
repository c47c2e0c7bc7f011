/* What a twin costs, and when mode auto has earned one.
 *
 * Trust domain: supervisor; readings are the kernel's. Invariants: costs are processors' time and counts, which a busy
 * machine hardly stretches, and the time that cells have worked is without that in which others had the processor: the
 * same cells get about the same twins, whatever else runs.
 */
#include "twin_cost.h"

#define MS 1000000.0
#define IDLE_LEAST (50 * MS) /* nobody is waiting */
#define IDLE_MOST (2000 * MS)
/* A twin may cost one part in so many of the time that cells have worked. */
#define SHARE 40
/* What making one costs over what the guest runs for it: the second fork, what the twin does until it waits, and the
 * end of an old one are others'. 3 with a small heap, 4 with pandas, 6 with 1 GB. */
#define WHOLE 4
/* A page that is copied: some tenths of a microsecond; in a virtual machine 3, or 14 if its host has to find memory. */
#define FAULT_LEAST_S 0.5e-6
#define FAULT_MOST_S 16e-6
#define SMALL_S 10e-3 /* a twin that delays cells by less is made before each: an answered cell is not undone */
#define PAGE 4096
#define STOOD_MOST_S 60

/* The lower word counts at once: what seems dear is seldom tried again. */
static void learn(double *known, double seen)
{
	*known = *known <= 0 || seen < *known ? seen : (*known + seen) / 2;
}

void cb_twin_cost_begun(struct cb_twin_cost *c, struct cb_turns before)
{
	c->worked_s = 0;
	c->cells = 0;
	c->begun = before;
}

void cb_twin_cost_made(struct cb_twin_cost *c, struct cb_turns now, double stood_s)
{
	double ran = now.ran_s - c->begun.ran_s;

	ran = ran > 0 ? ran : stood_s > 0 && stood_s < STOOD_MOST_S ? stood_s : 0;
	c->readings += c->readings < 2;
	learn(&c->made_s, WHOLE * ran);
	/* a memory that has grown shows soon, a machine that is busy for a while makes no promise void */
	c->delay_s = c->delay_s <= 0 || ran < c->delay_s ? ran : c->delay_s + (ran - c->delay_s) / 32;
}

bool cb_twin_cost_reads(const struct cb_twin_cost *c)
{
	return c->cells == 0;
}

/* The first cell after a fork copies what it touches; the kernel counts that as minor faults, and new memory's as well:
 * what is left of that is no copy. An upper bound, as is what there was to copy. How long it took is some part of the
 * cell's time in the kernel. */
static void copied(struct cb_twin_cost *c, const struct cb_touched *now)
{
	double grown = (double)now->own_bytes - (double)c->before.own_bytes, took = now->sys_s - c->before.sys_s;
	double pages = (double)now->faults - (double)c->before.faults - (grown > 0 ? grown / PAGE : 0);
	double most = (double)c->before.own_bytes / PAGE;

	pages = pages < 0 ? 0 : most > 0 && pages > most ? most : pages;
	c->copying_s[1] = c->copying_s[0];
	c->copying_s[0] = pages * FAULT_LEAST_S;
	if (took < pages * FAULT_LEAST_S)
		took = pages * FAULT_LEAST_S;
	learn(&c->copied_s, took < pages * FAULT_MOST_S ? took : pages * FAULT_MOST_S);
}

void cb_twin_cost_ran(struct cb_twin_cost *c, double seconds, const struct cb_touched *now)
{
	if (now != NULL && now->faults >= c->before.faults) /* else it is another process */
		copied(c, now);
	c->cells++;
	c->worked_s += seconds;
}

void cb_twin_cost_files(struct cb_twin_cost *c, double seconds)
{
	learn(&c->files_s, seconds > 0 && seconds < STOOD_MOST_S ? seconds : 0);
}

/* By processors' time and counts, like the rest: on a busy machine it is no less true that little is lost. A single
 * cell that touches much, as imports do, says nothing of the next; nor does the first fork, of a Python that is cold.
 */
double cb_twin_cost_delay(const struct cb_twin_cost *c)
{
	double copying = c->copying_s[0] < c->copying_s[1] ? c->copying_s[0] : c->copying_s[1];
	double fork = c->readings < 2 ? 0 : c->delay_s;

	return fork + copying + c->files_s;
}

bool cb_twin_cost_is_small(const struct cb_twin_cost *c)
{
	return c->readings > 0 && cb_twin_cost_delay(c) < SMALL_S;
}

double cb_twin_cost_due(const struct cb_twin_cost *c)
{
	return SHARE * (c->made_s + c->copied_s + c->files_s);
}

bool cb_twin_cost_is_earned(const struct cb_twin_cost *c, struct cb_turns now)
{
	double waited = now.waited_s - c->begun.waited_s;

	return c->worked_s - (waited > 0 ? waited : 0) >= cb_twin_cost_due(c);
}

/* When nobody has asked for anything for a while a twin delays nobody, but the next cell copies for it: what comes in a
 * shorter while than that lasts is not worth a twin of its own. */
int64_t cb_twin_cost_idle(const struct cb_twin_cost *c)
{
	double cost = (c->made_s + c->copied_s + c->files_s) * 1e9;

	return (int64_t)(cost < IDLE_LEAST ? IDLE_LEAST : cost < IDLE_MOST ? cost : IDLE_MOST);
}
