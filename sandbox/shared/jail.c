/* What can be said of a jail in the making, and where its programs begin: see jail.h.
 *
 * Trust domain: broker and pid 1; helpers in the jail.
 */
#include "jail.h"

#include "mounts.h"

#include <cellblock/visible.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

bool cb_jail_may_lack(const struct cb_jail *jail, const char *path)
{
	const struct cb_jail_spec *spec = jail->spec;

	return jail->began && spec->workspace_mode == CB_WORKSPACE_OVERLAY && spec->workspace_target != NULL &&
	       cb_path_within(path, spec->workspace_target);
}

int cb_enter_folder(const char *cwd, const char *workspace)
{
	if (chdir(cwd) == 0)
		return 0;
	if (workspace == NULL || !cb_path_within(cwd, workspace) || chdir(workspace) < 0)
		return -errno;
	return 1;
}
