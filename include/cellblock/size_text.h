/* Sizes for people. See base/size_text.c. */
#pragma once

#include <stdint.h>

#define CB_SIZE_TEXT 32
/* 1073741824 is "1 GiB", a half more "1.5 GiB": what a unit does not divide has four digits. Returns ret_text. */
const char *cb_size_text(uint64_t bytes, char ret_text[CB_SIZE_TEXT]);
