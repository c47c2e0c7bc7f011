/* Limits of a whole jail by control groups, and where there are none a watchdog: one small interface over three back
 * ends.
 *
 * Trust domain: broker (or run), outside. A back end is chosen by what works – a group is made, limited and entered by
 * a child – never by what is mounted. Broker and supervisor are never in a jail's group. Groups are made below the
 * group that we were started in, so that limits put on us from outside go on to hold; but with version 2 where systemd
 * runs they are made in a scope beside it, and where our own group can't be divided below the nearest that can: there
 * only the limits of groups above go on to hold (a default TasksMax of a service would leave no room for a jail). Every
 * group is locked (flock on its folder) by the broker that made it: a group that nobody holds is the remains of a
 * broker that was killed, and is swept at the next start.
 */
#pragma once

#include <cellblock/cgroup_own.h>
#include <cellblock/error.h>
#include <cellblock/host_memory.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cb_cgroup_kind { CB_CGROUP_NONE, CB_CGROUP_V1, CB_CGROUP_V2 };
enum cb_controller { CB_CG_MEMORY, CB_CG_PIDS, CB_CG_CPU, CB_CG_CPUACCT, CB_CONTROLLERS };

#define CB_CGROUP_PREFIX "cellblock-"
#define CB_CGROUP_PERIOD_US 100000 /* of limits.cpu; cb_jail_spec.limit_cpu is the share of it in microseconds */

/* Where this broker makes its groups. */
struct cb_cgroups {
	enum cb_cgroup_kind kind;
	int base[CB_CONTROLLERS]; /* owned folder fds, -1 = this controller can't be had; v2: the same folder each time
				   */
	struct cb_err lack;	  /* what can't be had and why: kind is NONE, or limits.cpu is not held */
	bool swaps;		  /* the host has swap, and what of a jail is there no group counts */
};

/* One jail's group. Kind NONE: no group; all calls do nothing. */
struct cb_cgroup {
	enum cb_cgroup_kind kind;
	char name[64];
	int dir[CB_CONTROLLERS]; /* owned, locked; -1 = none */
};

#define CB_CGROUPS_NONE ((struct cb_cgroups){ .base = { -1, -1, -1, -1 } })
#define CB_CGROUP_EMPTY ((struct cb_cgroup){ .dir = { -1, -1, -1, -1 } })

struct cb_cgroup_figures {
	uint64_t memory_peak;	 /* bytes; 0 = not known */
	struct cb_oom_count oom; /* processes of the group that the kernel killed for lack of memory */
};

/* Finds the back end that holds the limits of `spec`, tried with a child. Never fails: ret->kind and ret->lack say what
 * there is. */
void cb_cgroups_open(const struct cb_jail_spec *spec, struct cb_cgroups *ret);
/* Removes what dead brokers left. Takes milliseconds: for when nobody waits. */
void cb_cgroups_sweep(const struct cb_cgroups *c);
void cb_cgroups_release(struct cb_cgroups *c);
/* full if memory and pids are held, and cpu where it is asked for; else no-cgroup. */
enum cb_isolation_level cb_cgroups_level(const struct cb_cgroups *c, const struct cb_jail_spec *spec);
/* "cgroup v1: memory, pids, cpu" or "no cgroup: …", for banner, doctor and logs. */
void cb_cgroups_describe(const struct cb_cgroups *c, char *ret_text, size_t size);

/* Makes a group with the limits of `spec`. On failure nothing is left. */
int cb_cgroup_make(const struct cb_cgroups *c, const struct cb_jail_spec *spec, struct cb_cgroup *ret,
		   struct cb_err *err);
/* Lets in `more` tasks of ours than the group was made for. */
int cb_cgroup_let_in(const struct cb_cgroup *g, const struct cb_jail_spec *spec, unsigned more);
/* As clone(2) with these flags: a child that is in the group when this returns in it, or *ret_joined says why not. */
pid_t cb_cgroup_clone(const struct cb_cgroup *g, uint64_t flags, int *ret_pidfd, int *ret_joined);
/* Files of the group: who writes "0" to each is in it, by our right and not its own. The caller closes what is not -1,
 * also after an error. */
int cb_cgroup_join_fds(const struct cb_cgroup *g, int ret_fds[CB_CONTROLLERS]);
void cb_cgroup_read(const struct cb_cgroup *g, const struct cb_jail_spec *spec, struct cb_cgroup_figures *ret);
/* Descriptors for the supervisor's accounting (enum cb_usage_fd): what can't be had is /dev/null. */
int cb_cgroup_usage_fds(const struct cb_cgroup *g, int ret_fds[CB_USAGE_NFDS]);
/* Removes a group whose processes have ended; NULL and an empty one allowed. */
void cb_cgroup_remove(const struct cb_cgroups *c, struct cb_cgroup *g);

/* ---- back ends: v1.c, v2.c ---- */

struct cb_cgroup_backend {
	enum cb_cgroup_kind kind;
	const char *name;
	/* Fills base[]; CB_CG_MEMORY and CB_CG_PIDS are needed, the others may stay -1. */
	int (*find)(const struct cb_cgroup_tables *t, struct cb_cgroups *c, struct cb_err *err);
	void (*sweep)(const struct cb_cgroup_tables *t, const struct cb_cgroups *c);
	int (*limit)(const struct cb_cgroup *g, const struct cb_jail_spec *spec);
	/* file names; ever: NULL where the events say enough (base/host_memory.c) */
	const char *peak_file, *peak_ever_file, *events_file, *cpu_file, *memory_file, *swap_file;
	enum cb_controller cpu_controller;
};
extern const struct cb_cgroup_backend cb_cgroup_v1, cb_cgroup_v2;

/* ---- files.c: the text of these files ---- */

int cb_cg_write(int dir, const char *file, const char *text);
int cb_cg_write_number(int dir, const char *file, uint64_t value);
/* Whether a table as /proc/swaps names any: a line below its head. One that can't be read does. */
bool cb_cg_has_swap(const char *table);
/* Removes groups of ours that nobody holds from `folder` and, down to `depth` levels, below it. */
void cb_cg_sweep(int folder, int depth);
