/* SHA-1: see sha1.c. */
#pragma once

#include <stddef.h>

#define CB_SHA1 20u
void cb_sha1(const void *data, size_t n, unsigned char ret[CB_SHA1]);
