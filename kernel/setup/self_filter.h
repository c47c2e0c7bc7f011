/* The supervisor's own system call filter. Trust domain: supervisor. */
#pragma once

#include <cellblock/error.h>

/* Loads the filter into the calling thread; threads made later inherit it. Takes no_new_privs. */
int cb_self_filter_load(struct cb_err *err);
