/* timeout.idle: the jail ends when nobody has wanted anything for a while. Trust domain: supervisor. See idle.c. */
#pragma once

struct cb_idle;
struct cb_shells;

int cb_idle_init(struct cb_shells *sh);
/* A request came or ended, a subscriber came or went. */
void cb_idle_touch(struct cb_idle *i);
