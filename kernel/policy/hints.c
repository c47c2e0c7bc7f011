/* What the guest is told of the policy.
 *
 * Role: the values that guest/cellblock_guest/refusals.py names when the jail refuses something, and those that
 * %limits lists. Words for users; nothing is decided by them, and nothing in them is secret: a cell could find out each
 * by trying. Trust domain: supervisor, at start.
 */
#include "hints.h"

#include <errno.h>
#include <stdlib.h>

#include "keys.h"
#include "workspace.h"

#define MAX_BYTES 65536 /* of one environment variable; execve allows 128 KiB */

static const char *const told[] = {
	"network.mode",	     "network.allow",	   "workspace.protect", "packages.mode", "limits.memory",
	"limits.cpu",	     "limits.pids",	   "limits.tmp",	"limits.shm",	 "limits.inodes",
	"limits.open_files", "limits.file_size",   "workspace.size",	"limits.output", "limits.message",
	"timeout.cell",	     "timeout.cpu",	   "timeout.wait",	"timeout.grace", "transactions.mode",
	"transactions.keep", "transactions.names", "root.path",		"imports.allow",
};

static json_t *collect(const struct cb_policy *policy, const struct cb_jail_spec *spec)
{
	json_t *says = json_object(), *mounts = json_array();

	for (size_t i = 0; i < CB_COUNT(told); i++) {
		const struct cb_policy_key *key = cb_policy_key_find(told[i]);

		if (key != NULL)
			(void)json_object_set_new(says, key->name, cb_policy_key_get(policy, key));
	}
	(void)json_object_set_new(says, "workspace.mode", json_string(cb_workspace_mode_name(spec->workspace_mode)));
	(void)json_object_set_new(says, "workspace.size", json_integer((json_int_t)spec->limit_workspace));
	(void)json_object_set_new(says, "workspace", json_string(spec->workspace_target));
	if (policy->workspace_project)
		(void)json_object_set_new(says, "workspace.project", json_true());
	if (spec->workspace_note != NULL && spec->workspace_mode == CB_WORKSPACE_TMPFS)
		(void)json_object_set_new(says, "workspace.note", json_string(spec->workspace_note));
	for (size_t i = 0; i < policy->nmounts; i++)
		(void)json_array_append_new(mounts, json_string(policy->mounts[i].target));
	(void)json_object_set_new(says, "mounts", mounts);
	return says;
}

int cb_policy_hints(const struct cb_policy *policy, struct cb_jail_spec *spec)
{
	json_auto_t *says = collect(policy, spec);
	char *text = json_dumps(says, JSON_COMPACT | JSON_ENSURE_ASCII);
	int r;

	if (text != NULL && strlen(text) > MAX_BYTES) {
		free(text);
		json_object_del(says, "workspace.protect");
		json_object_del(says, "network.allow");
		text = json_dumps(says, JSON_COMPACT | JSON_ENSURE_ASCII);
	}
	r = text != NULL ? cb_strv_addf(&spec->env, CB_SAYS_VARIABLE "=%s", text) : -ENOMEM;
	free(text);
	return r;
}
