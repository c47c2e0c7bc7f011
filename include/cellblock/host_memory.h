/* Memory of this host, or of the container that we are in. See base/host_memory.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

uint64_t cb_host_memory(void); /* bytes that there are */
/* Less than 1/16 of it can be had without taking it from somebody. Cheap to ask often; for the main thread. */
bool cb_host_memory_short(void);

/* For tests: the same of files below `root`. */
bool cb_host_memory_short_at(const char *root);
