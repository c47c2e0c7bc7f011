/* Builds one jail, and clears up after one. Trust domain: broker (or run), outside. */
#pragma once

#include "../shared/jail.h"
#include "inmate.h"

int cb_jail_launch(struct cb_jail *jail, struct cb_inmate *ret_inmate, struct cb_err *err);
/* The next jail starts without what the last ones installed or deleted in the interpreter's prefix, and says so. */
void cb_jail_drop_packages(struct cb_jail *jail);
/* After the end of pid 1: reaps it, reads the last figures of its group and removes that. */
void cb_jail_ended(struct cb_jail *jail, struct cb_inmate *inmate, struct cb_cgroup_figures *ret_figures);
