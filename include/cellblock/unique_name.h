/* Names of what is made for a while. See base/unique_name.c. */
#pragma once

#include <stddef.h>

/* PREFIX, and what nobody else puts behind it: in another container, with the same folder, a process has our number. */
void cb_unique_name(const char *prefix, char *ret_name, size_t size);
