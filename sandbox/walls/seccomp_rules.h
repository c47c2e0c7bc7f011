/* The rows of seccomp_groups.def as a table: for seccomp.c, report/explain.c and the tests. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cb_seccomp_kind {
	CB_SECCOMP_GROUP,  /* name and reason of a group */
	CB_SECCOMP_ALLOW,  /* allowed with any argument */
	CB_SECCOMP_WHEN,   /* `error` (0 = allowed) if all checks hold */
	CB_SECCOMP_REFUSE, /* `error`, always */
	CB_SECCOMP_ABSENT, /* not in the filter: ENOSYS like all that is not listed */
};

struct cb_seccomp_check {
	uint8_t arg;
	uint32_t mask, value;
	bool high; /* of the argument's high 32 bits, else of the low ones */
};

#define CB_SECCOMP_MAX_CHECKS 3
#define CB_SECCOMP_NOTHING 4095 /* as an error: the call is not made, and returns 0 */

struct cb_seccomp_rule {
	enum cb_seccomp_kind kind;
	const char *name;
	const char *reason; /* of a group */
	int nr;		    /* negative: this machine has no such call */
	uint16_t error;
	uint8_t nchecks;
	struct cb_seccomp_check checks[CB_SECCOMP_MAX_CHECKS];
};

extern const struct cb_seccomp_rule cb_seccomp_rules[];
extern const size_t cb_seccomp_rules_count;
