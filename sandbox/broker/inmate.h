/* A jail that runs. Trust domain: broker, outside. */
#pragma once

#include "../cgroup/cgroup.h"
#include "../notifier/notifier.h"

#include <sys/types.h>

/* A jail that runs, as the broker knows it. */
struct cb_inmate {
	pid_t pid1;  /* 0 = none */
	int pidfd;   /* pid 1's */
	pid_t guest; /* as we see it */
	bool warm;   /* its guest came from a zygote */
	struct cb_cgroup group;
	struct cb_notifier notifier;
	int sockets; /* shows its sockets (kernel_memory.c), where somebody has to look at them; -1 = none */
	ino_t registry; /* of them pid 1's own; 0 = unknown */
};
#define CB_INMATE_NONE                                                                                                 \
	((struct cb_inmate){ .pidfd = -1, .group = CB_CGROUP_EMPTY, .notifier = CB_NOTIFIER_NONE, .sockets = -1 })
