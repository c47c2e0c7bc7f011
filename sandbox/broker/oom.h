/* Whom the kernel's OOM killer takes. Trust domain: broker, outside. See oom.c. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* A descendant of pid 1 is to be killed first, or as late as we ourselves. 0 or a negative errno. */
int cb_oom_score(pid_t pid1, pid_t pid, bool victim);
