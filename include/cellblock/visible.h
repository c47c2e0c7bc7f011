/* Text that others chose, as a terminal shows it and does nothing else by it. */
#pragma once

#include <stddef.h>

#define CB_VISIBLE_PIECE 20 /* a character, escaped: four bytes of four characters, and NUL */

/* One character at `text` (before `end`): as it is, or as \xNN for each byte where it is a control character (a
 * newline too), changes the direction of text, shows nothing, or is no UTF-8. Returns the bytes taken. */
size_t cb_visible_character(const char *text, const char *end, char ret_piece[CB_VISIBLE_PIECE]);

/* All of `text`, cut where `size` ends, after a whole character. Returns the length, without NUL. */
size_t cb_visible(const char *text, size_t len, char *ret_text, size_t size);

/* The same in malloc'd memory, not cut; NULL where there is none. */
char *cb_visible_copy(const char *text);

/* For arguments of printf in programs of one thread: good until CB_SHOWN_MAX more were asked for. */
#define CB_SHOWN_MAX 8
const char *cb_shown(const char *text);
