/* seccomp_groups.def as a table for this machine.
 *
 * Trust domain: broker. The numbers come from libseccomp's header: negative for calls that the machine does not have.
 * Used by seccomp_compile.c, report/explain.c and the tests. Invariant: a call's rules keep the order in which they
 * stand in the file.
 */
#include "seccomp_rules.h"

#include <errno.h>
#include <seccomp.h>

#define ALLOWED 0
#define REFUSED_WITH(e) (e)
#define CHECK(n, mask, value, high)                                                                                    \
	{                                                                                                              \
		(n), (mask), (value), (high)                                                                           \
	}
#define ARG(n, mask, value) CHECK(n, mask, value, false)
#define HIGH(n, value) CHECK(n, UINT32_MAX, value, true)
#define RULE(k, call, number, ...) { .kind = (k), .name = #call, .nr = (number), __VA_ARGS__ },
#define GROUP(id, why) { .kind = CB_SECCOMP_GROUP, .name = #id, .reason = (why), .nr = -1 },
#define ALLOW(call) RULE(CB_SECCOMP_ALLOW, call, SCMP_SYS(call))
#define COUNT(...) (sizeof((struct cb_seccomp_check[]){ __VA_ARGS__ }) / sizeof(struct cb_seccomp_check))
#define WHEN(call, verdict, ...)                                                                                       \
	RULE(CB_SECCOMP_WHEN, call, SCMP_SYS(call), .error = (verdict), .nchecks = COUNT(__VA_ARGS__),                 \
	     .checks = { __VA_ARGS__ })
#define OTHERWISE(call, verdict) RULE(CB_SECCOMP_WHEN, call, SCMP_SYS(call), .error = (verdict))
#define MODE(call, n)                                                                                                  \
	RULE(CB_SECCOMP_WHEN, call, SCMP_SYS(call), .nchecks = 1, .checks = { ARG(n, 06000, 0) })                     \
	RULE(CB_SECCOMP_WHEN, call, SCMP_SYS(call), .error = EPERM)
#define REFUSE_AS(call, e) RULE(CB_SECCOMP_REFUSE, call, SCMP_SYS(call), .error = (e))
#define REFUSE(call) REFUSE_AS(call, EPERM)
#define PRETEND(call, ...)                                                                                             \
	RULE(CB_SECCOMP_REFUSE, call, SCMP_SYS(call), .error = CB_SECCOMP_NOTHING, .nchecks = COUNT(__VA_ARGS__),      \
	     .checks = { __VA_ARGS__ })
#define ABSENT(call) RULE(CB_SECCOMP_ABSENT, call, -1, .error = ENOSYS)

const struct cb_seccomp_rule cb_seccomp_rules[] = {
#include "seccomp_groups.def"
};
const size_t cb_seccomp_rules_count = CB_COUNT(cb_seccomp_rules);
