/* Memory of this host, or of the container or control group that we are in; and for whose lack of it the kernel killed.
 * See base/host_memory.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t cb_host_memory(void); /* bytes that there are: the host's, or those of the least group above us */
/* The least limit that a control group holds which we are in, with its folder (NULL allowed); 0 = none below the
 * host's. */
uint64_t cb_group_memory(char *ret_folder, size_t size);
/* Less than 1/16 of it can be had without taking it from somebody. Cheap to ask often; for the main thread. */
bool cb_host_memory_short(void);
/* Bytes that can be had so: of the host, or of the least group above us; 0 = none, or the host does not say. */
uint64_t cb_host_memory_left(void);

/* What a control group with a limit counts of its processes that the kernel killed for lack of memory. */
struct cb_oom_count {
	uint64_t kills;	    /* for any lack: the group's own, that of a group above it, the host's */
	uint64_t limit_met; /* not 0 if one may have been for the group's own limit */
};
enum cb_oom { CB_OOM_NONE, CB_OOM_LIMIT, CB_OOM_HOST }; /* HOST: or a group above */

/* From the files' text: memory.events; or, version 1, memory.oom_control and memory.memsw.max_usage_in_bytes ("": the
 * kernel has none). `limit`: the group's own. */
void cb_oom_parse(const char *events, const char *peak, uint64_t limit, struct cb_oom_count *ret);
/* For whose lack it was that processes were killed between two looks. What can't be told is the group's; `told_apart`
 * is false where cells can reach control groups and the broker, for then nothing can. */
enum cb_oom cb_oom_between(const struct cb_oom_count *before, const struct cb_oom_count *after, bool told_apart);

/* For tests: the same of files below `root`. */
uint64_t cb_host_memory_left_at(const char *root);
bool cb_host_memory_short_at(const char *root);
uint64_t cb_group_memory_at(const char *root, char *ret_folder, size_t size);
