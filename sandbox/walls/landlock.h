/* Landlock: rules of the kernel about files, which a process puts on itself and on all that come from it.
 *
 * Trust domain: pid 1 (a second wall behind the mounts) and whoever has no mount namespace to build walls with. A place
 * is an open folder or file; rules follow what it names, wherever that is mounted. What no place covers is refused. The
 * kernel does not ask Landlock for: stat, chdir, access, chmod, chown, times, extended attributes, flock; nor for
 * descriptors that were open before.
 */
#pragma once

#include "../shared/jail.h"

#include <cellblock/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version that the kernel speaks; 0 = none that is of use: no Landlock, not switched on, refused by a filter, or
 * the first version, under which no file could be moved to another folder. */
int cb_landlock_version(void);

/* Its absence, for explain and doctor: what, and the cure. */
#define CB_LANDLOCK_ABSENT "not on this host: its kernel has no Landlock, not switched on or too old (before 5.19)"
#define CB_LANDLOCK_CURE "use Linux 5.19 or newer, booted with landlock among the modules of the parameter lsm="

/* What may be done below a place. */
#define CB_LANDLOCK_READ 1u    /* read files, list folders, run programs */
#define CB_LANDLOCK_WRITE 2u   /* write, make, move and delete files and folders; never device nodes */
#define CB_LANDLOCK_DEVICES 4u /* write to files that are there and speak to devices */

struct cb_landlock_place {
	int fd; /* O_PATH is enough */
	unsigned rights;
};

/* What a version rules over, in the kernel's bits. */
struct cb_landlock_bits {
	uint64_t files;
	uint64_t network;
	uint64_t scopes; /* from version 6: signals and abstract sockets reach only processes under the same rules */
};
struct cb_landlock_bits cb_landlock_handled(int version);
/* What `rights` become for a folder or for anything else, in that version. */
uint64_t cb_landlock_allowed(int version, unsigned rights, bool folder);

/* Places in the making; all zero at first. */
#define CB_LANDLOCK_PLACES_MAX 256u
struct cb_landlock_wall {
	struct cb_landlock_place places[CB_LANDLOCK_PLACES_MAX];
	size_t n;
};
/* Takes `fd` over. Without room it is closed, and the place has no rule. */
void cb_landlock_add(struct cb_landlock_wall *wall, int fd, unsigned rights);
/* What a command was given as output may be a file or a terminal outside, which programs open again as /dev/stdout. */
void cb_landlock_add_output(struct cb_landlock_wall *wall, int fd);
/* Puts the rules on this process, as cb_landlock_restrict, and lets go of the places. */
int cb_landlock_enclose(struct cb_landlock_wall *wall, int version, struct cb_err *err);

/* Puts the rules on this process, for good. Needs no_new_privs; `version` is cb_landlock_version's, not 0. */
int cb_landlock_restrict(int version, const struct cb_landlock_place *places, size_t n, struct cb_err *err);

/* Puts a set of rules that is open on this process, for good. Needs no_new_privs. */
int cb_landlock_enter(int rules, struct cb_err *err);

/* Pid 1: as the mounts have it, once more; nothing where the kernel has no Landlock. In a warm jail the rules are
 * made and kept in jail->rules_fd. */
int cb_step_landlock(struct cb_jail *jail, struct cb_err *err);
