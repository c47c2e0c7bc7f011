/* What about this host decides whether a jail can be built: read once, judged by a pure function that tests can feed.
 */
#pragma once

#include <cellblock/error.h>
#include <stdbool.h>

struct cb_host_facts {
	long max_user_namespaces; /* sysctl user.max_user_namespaces; -1 = the kernel has none */
	long unprivileged_userns; /* sysctl kernel.unprivileged_userns_clone (Debian, Arch); -1 = absent */
	long apparmor_userns;	  /* sysctl kernel.apparmor_restrict_unprivileged_userns; -1 = absent */
	int seccomp;		  /* filter mode of this process: 2 = a container's or service's filter */
	bool proc_masked;	  /* something is mounted below /proc: a new one is refused */
	bool container;		  /* signs of Docker, Podman, Kubernetes or LXC */
	bool root;		  /* of the host, not of a user namespace */
	bool sys_admin;		  /* CAP_SYS_ADMIN: what a container's root mostly lacks */
	int kernel_major, kernel_minor;
	char label[128];    /* AppArmor profile that this process runs under; "" = none */
	bool label_is_own;  /* whoever started it has another or none: the profile is for this program */
	char program[4096]; /* path of this program, as a profile would have to name it */
};

void cb_host_facts_read(struct cb_host_facts *ret_facts);
/* Appends the cause to err->text and sets err->cure, if the facts explain the failure of `step` with `code`. */
void cb_diagnose_by(const struct cb_host_facts *facts, const char *step, int code, struct cb_err *err);
/* Names the cause found on this host and the cure for a failed step (sysctls, AppArmor, container profile …); fills
 * err->text and err->cure. */
void cb_diagnose(const char *step, int code, struct cb_err *err);
