/* What can be said of a jail in the making: see jail.h. Trust domain: broker and pid 1. */
#include "jail.h"

#include <cellblock/visible.h>

#include <stdio.h>
#include <string.h>

void cb_jail_add_note(struct cb_jail *jail, const char *text)
{
	size_t n = strlen(jail->note);

	snprintf(jail->note + n, sizeof(jail->note) - n, "%s", n > 0 ? "; " : "");
	n = strlen(jail->note);
	(void)cb_visible(text, strlen(text), jail->note + n, sizeof(jail->note) - n);
}

bool cb_jail_is_bound(const struct cb_jail_spec *spec, const char *place)
{
	size_t i = 0;

	while (i < spec->nbinds && strcmp(spec->binds[i].target, place) != 0)
		i++;
	return i < spec->nbinds;
}

bool cb_notify_writes(const struct cb_jail *jail)
{
	return !jail->without_namespaces && jail->spec->workspace_mode == CB_WORKSPACE_RW && !jail->workspace_ro;
}

bool cb_notify_sockets(const struct cb_jail *jail)
{
	return !jail->without_namespaces && jail->spec->notifier && jail->spec->network == CB_NETWORK_NONE;
}
