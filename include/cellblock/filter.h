/* Loading a seccomp filter, as all our programs do it. */
#pragma once

#include <stdbool.h>

struct sock_fprog;

/* Loads the filter for the calling thread, by seccomp() or, where a filter before it knows only that, by prctl().
 * 0 or a negative errno. */
int cb_filter_load(const struct sock_fprog *filter, bool by_prctl);

/* What an errno (positive) of it means, and the cure, NULL where there is none to name. */
const char *cb_filter_reason(int error);
const char *cb_filter_cure(int error);
