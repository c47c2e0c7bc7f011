/* The filter of system calls: seccomp.c, seccomp_compile.c; its rules are seccomp_groups.def.
 *
 * Trust domain: broker (compiles, tries it) and pid 1's children (load).
 */
#pragma once

#include <cellblock/error.h>
#include <linux/filter.h>
#include <stdbool.h>
#include <sys/types.h>

int cb_seccomp_compile(struct sock_fprog *ret_filter, struct cb_err *err); /* broker, once */
/* For a zygote, and for pid 1 of a warm jail: allows, beside all that, the calls by which one puts oneself behind
 * walls; for pid 1 also the one that gives the guest its limits. Who comes from them loads the other one on top. */
int cb_seccomp_compile_outer(bool for_pid1, struct sock_fprog *ret_filter, struct cb_err *err);
int cb_seccomp_load(const struct sock_fprog *filter, struct cb_err *err);
/* Where no namespaces stand before them: refuses sockets, all, or with `internet` those that are local; and what of
 * files Landlock does not ask. */
int cb_seccomp_load_no_sockets(bool internet, struct cb_err *err);
/* Every process but pid 1, on top of all other filters: kill(-1) is refused, and any filter after this one. */
int cb_seccomp_load_last(struct cb_err *err);
const struct sock_fprog *cb_seccomp_last(void); /* that program */
/* in a forked child: allowed calls work, denied are denied */
int cb_seccomp_selftest(const struct sock_fprog *filter, struct cb_err *err);
/* the same in two steps: the child needs some milliseconds */
int cb_seccomp_selftest_begin(const struct sock_fprog *filter, pid_t *ret_pid, struct cb_err *err);
int cb_seccomp_selftest_end(pid_t pid, struct cb_err *err);
