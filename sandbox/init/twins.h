/* Pid 1's book of twins (include/cellblock/twin.h). Private to sandbox/. See twins.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A socketpair that says who sends; the second end is the guest's. 0 or a negative errno. */
int cb_twins_make_registry(int ret_pair[2]);

/* What the supervisor asks for. */
void cb_twins_announce(uint32_t number);
void cb_twins_drop(uint32_t number);
void cb_twins_branch(uint32_t number);
void cb_twins_breed(uint32_t number); /* it runs, until the next take-over */
pid_t cb_twins_branch_pid(uint32_t number); /* 0 = there is no such branch */
/* Ends all but pid 1 and those registered that are children of ours, which are stopped; gives the process that is the
 * guest from now on, or a negative code: there is no such twin (-ESRCH), or some process would not die (-ETIMEDOUT). */
int cb_twins_restore(uint32_t number, pid_t *ret_guest);

/* Takes one message of the registry: 1, or 0 if there is none now, or -1 if there will be none any more. `guest` can't
 * be its own twin. */
int cb_twins_register(int registry, pid_t guest);
/* A child has ended, or is stopped; with a branch all that it had started ends, also when it is stopped. */
void cb_twins_reaped(pid_t pid, int status);
/* A child goes on. A twin that is held ends by that, with what it has started. */
void cb_twins_continued(pid_t pid);
/* Is there one that could take over? */
bool cb_twins_any(void);
bool cb_twins_any_branch(void); /* which has children; or a guest that has another for a parent than us */
/* Nobody runs any more but pid 1; again and again, since one who does not stop at once can wake others up. */
void cb_twins_stop_all(void);
/* All that is stopped runs again, but for twins: those are held since the take-over. */
void cb_twins_go_on(void);

/* init.c: tells the supervisor. */
void cb_init_tell(uint32_t op, int arg);
void cb_init_tell_end(uint32_t op, int arg, int status);
