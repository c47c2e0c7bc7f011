/* A writable workspace, looked at from outside. Trust domain: broker's child, outside. */
#pragma once

#include "../shared/jail.h"

#include <cellblock/buffer.h>

/* Its size, as JSON. */
void cb_look_report(const struct cb_jail *jail, struct cb_buf *out);
