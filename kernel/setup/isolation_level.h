/* Levels of isolation in words. Trust domain: supervisor. See isolation_level.c. */
#pragma once

#include <cellblock/sandbox.h>

/* "full", as in isolation.minimum. */
const char *cb_level_name(unsigned level);
/* Which walls and limits a jail of this level has: for banners and cells. */
const char *cb_level_text(unsigned level);
