/* State machines that are checked: see states.h. Trust domain: all C programs. */
#include <cellblock/log.h>
#include <cellblock/states.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void cb_states_broken(const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	cb_log(CB_LOG_ERROR, "a mistake in Cellblock, please report it: %s", text);
#ifdef CELLBLOCK_ASSERTS
	abort();
#endif
}

static const char *name(const struct cb_states *s, unsigned state)
{
	return state < CB_STATES_MAX && s->of[state].name != NULL ? s->of[state].name : "no state of it";
}

void cb_states_check(const struct cb_states *s, unsigned from, unsigned to)
{
	if (from >= CB_STATES_MAX || to >= CB_STATES_MAX || (s->of[from].next & 1u << to) == 0)
		cb_states_broken("%s went from \"%s\" to \"%s\"", s->what, name(s, from), name(s, to));
}
