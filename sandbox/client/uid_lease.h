/* The parts of the uid lease that its tests replace; private to sandbox/client. See uid_lease.c. */
#pragma once

#include <cellblock/error.h>
#include <sys/types.h>

#define CB_UID_FIRST 0x7ce00000u
#define CB_UID_COUNT 4096u
#define CB_UID_LOWEST 1000u /* below are system accounts */
#define CB_UID_NOBODY 65534u

struct cb_uid_places {
	const char *run, *uid_map, *gid_map, *passwd, *group;
};

int cb_uid_lease_in(const struct cb_uid_places *places, uid_t *ret_uid, int *ret_lock_fd, struct cb_err *err);
void cb_uid_release_in(const struct cb_uid_places *places, int *lock_fd);
