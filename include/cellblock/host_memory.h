/* Memory of this host, or of the container or control group that we are in. See base/host_memory.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t cb_host_memory(void); /* bytes that there are: the host's, or those of the least group above us */
/* The least limit that a control group holds which we are in, with its folder (NULL allowed); 0 = none below the
 * host's. */
uint64_t cb_group_memory(char *ret_folder, size_t size);
/* Less than 1/16 of it can be had without taking it from somebody. Cheap to ask often; for the main thread. */
bool cb_host_memory_short(void);
/* Bytes that can be had so: of the host, or of the least group above us; 0 = none, or the host does not say. */
uint64_t cb_host_memory_left(void);

/* For tests: the same of files below `root`. */
uint64_t cb_host_memory_left_at(const char *root);
bool cb_host_memory_short_at(const char *root);
uint64_t cb_group_memory_at(const char *root, char *ret_folder, size_t size);
