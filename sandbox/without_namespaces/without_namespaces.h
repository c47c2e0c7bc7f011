/* The jail where the host refuses namespaces: levels "container" and "none". Private to sandbox/.
 *
 * No mount can be made, so paths inside are the host's; a folder below /tmp takes the place of home, /tmp and of a
 * workspace in memory. Walls: no capabilities, no_new_privs, the filter and a second one that leaves no sockets, limits
 * of single processes, and, which makes the level "container", Landlock. The jail is no process tree of the kernel's
 * making: pid 1 and the broker are each a reaper of orphans, and kill what is left.
 */
#pragma once

#include "../shared/jail.h"

/* sweep.c: kills all descendants of this process, and reaps them. With `uid`, all processes of that uid. Step by step,
 * until one gives true; or all steps. */
struct cb_sweep {
	uid_t uid;
	int64_t until, kill_at; /* 0 at first */
	unsigned empty;		/* passes that found nobody; 0 at first */
};
/* The children that this process has now are not the jail's: no sweep of this process ends them, or what they have
 * below them now. */
void cb_sweep_spare(void);
bool cb_sweep_step(struct cb_sweep *s);
void cb_sweep(uid_t uid);
#define CB_SWEEP_CHILDREN ((uid_t)-1)
/* sweep.c: removes a folder that a jail could write, however deep it is. 0 gone, -EAGAIN the time was up (it can be
 * gone on with), else why not. */
int cb_remove_folder(const char *path, int64_t until_ms);

struct cb_without_namespaces_ending {
	struct cb_sweep sweep;
	bool swept;
	int64_t until;
};

/* Whether `failure` says that the host refuses what a jail is made of, and the description accepts the level that is
 * left. Sets jail->without_namespaces and jail->level. If the description does not accept it, names the level in
 * failure->cure. */
bool cb_without_namespaces_choose(struct cb_jail *jail, struct cb_err *failure);

/* Broker, before the clone: opens the workspace, makes the folder. Also adds to jail->note what is missing. */
int cb_without_namespaces_open(struct cb_jail *jail, struct cb_err *err);
/* Broker, after pid 1's end or a launch that failed: kills what is left of the jail, removes the folder. In steps, of
 * CB_WITHOUT_NAMESPACES_STEP_MS each, until one gives true: what a jail leaves may take seconds. `ending` is zero at
 * first. */
bool cb_without_namespaces_end_step(struct cb_jail *jail, struct cb_without_namespaces_ending *ending);
#define CB_WITHOUT_NAMESPACES_STEP_MS 5
/* All steps. */
void cb_without_namespaces_end(struct cb_jail *jail);

/* Pid 1's steps without namespaces. */
extern const struct cb_step cb_without_namespaces_steps[];
extern const size_t cb_without_namespaces_steps_count;

/* The guest's process, before its exec: Landlock and both filters. */
int cb_without_namespaces_enclose(const struct cb_jail *jail, struct cb_err *err);
/* What `inside` is on this host. Writes to `buf` (PATH_MAX) or returns `inside`. */
const char *cb_without_namespaces_path(const struct cb_jail *jail, const char *inside, char *buf);
/* Makes the command's and the environment's paths the host's; never freed. */
int cb_without_namespaces_command(const struct cb_jail *jail, char ***ret_argv, char ***ret_env);
