/* The monotonic clock. */
#pragma once

#include <stdint.h>

int64_t cb_now_ns(void);
int64_t cb_now_ms(void);
