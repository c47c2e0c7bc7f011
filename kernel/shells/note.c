/* See note.h. */
#include "note.h"

#include <cellblock/log.h>
#include <cellblock/visible.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "shells.h"

/* What does not fit goes to the log. */
void cb_execution_note(struct cb_execution *x, const char *format, ...)
{
	size_t told = strlen(x->note), room = sizeof(x->note) - told;
	char text[sizeof(x->note)], *shown;
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	shown = cb_visible_copy(text);
	if (shown != NULL && strlen(shown) + sizeof("[cellblock: ]\n") <= room)
		snprintf(x->note + told, room, "[cellblock: %s]\n", shown);
	else
		cb_log(CB_LOG_WARNING, "%s", text);
	free(shown);
}
