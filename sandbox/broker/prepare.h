/* What is done once for a broker or a run. Trust domain: outside. */
#pragma once

#include "../shared/jail.h"

/* Reads the description, leases a uid if we are root, compiles the filter and tests it. *spec must outlive *jail. */
int cb_jail_prepare(struct cb_jail *jail, struct cb_jail_spec *spec, int spec_fd, struct cb_err *err);
