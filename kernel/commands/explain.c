/* `cellblock explain`: the policy in force, and the jail that it results in.
 *
 * Role: prints the policy, every key of it, then cellblock-jail explains the
 * steps from the description that it would build from. Trust domain: supervisor's program, no secrets.
 */
#include <cellblock/size_text.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <jansson.h>
#include <sys/wait.h>

#include "command.h"
#include "policy/keys.h"
#include "policy/paths.h"
#include "setup/capture.h"
#include "setup/isolation_level.h"
#include "setup/jail_spec.h"
#include "setup/warm_place.h"

#define MAX_STEPS (1u << 20)
#define TIMEOUT_MS 30000

static json_t *policy_to_json(const struct cb_policy *p, const struct cb_jail_spec *spec)
{
	json_t *root = json_object(), *keys = json_object(), *files = json_array();

	for (size_t i = 0; i < cb_policy_keys_count; i++)
		json_object_set_new(keys, cb_policy_keys[i].name, cb_policy_key_get(p, &cb_policy_keys[i]));
	for (size_t i = 0; i < p->files.count; i++)
		json_array_append_new(files, json_string(p->files.items[i]));
	json_object_set_new(root, "name", json_string(p->name));
	json_object_set_new(root, "files", files);
	json_object_set_new(root, "keys", keys);
	json_object_set_new(root, "not_built", json_array()); /* all defaults are */
	json_object_set_new(root, "workspace_note",
			    spec->workspace_note != NULL ? json_string(spec->workspace_note) : json_null());
	return root;
}

static void print_writable(const struct cb_jail_spec *spec)
{
	static const char *const modes[] = {
		[CB_WORKSPACE_RW] = "the folder itself",
		[CB_WORKSPACE_RO] = "only read",
		[CB_WORKSPACE_TMPFS] = "an empty one in memory, gone at the end",
		[CB_WORKSPACE_OVERLAY] = "changes in a layer of memory, gone at the end",
	};

	printf("  workspace  %s: %s\n", cb_shown(spec->workspace_target), modes[spec->workspace_mode]);
	printf("  files      writable: %s/tmp, %s, /dev/shm (in memory, gone at the end)",
	       spec->workspace_mode == CB_WORKSPACE_RO ? "" : "the workspace, ", CB_JAIL_HOME);
	for (size_t i = 0; i < spec->nbinds; i++)
		if (spec->binds[i].mode == CB_BIND_RW)
			printf(", %s", cb_shown(spec->binds[i].target));
	printf("\n             readable: the system's programs, the interpreter, what the policy mounts; nothing "
	       "else\n");
}

static void print_transactions(const struct cb_policy *p)
{
	static const char *const modes[] = {
		[CB_MODE_AUTO] = "auto", [CB_MODE_ALWAYS] = "always", [CB_MODE_OFF] = "off"
	};

	printf("  a crash    transactions.mode is \"%s\": ", modes[p->transactions_mode]);
	if (p->transactions_mode == CB_MODE_OFF)
		printf("costs all variables\n");
	else
		printf("the state from before the cell comes back%s\n",
		       p->isolation_minimum < CB_LEVEL_NO_CGROUP ? ", unless the level reached is below \"no-cgroup\""
								 : "");
}

static void print_start(const struct cb_policy *p, const struct cb_jail_spec *spec)
{
	CB_AUTO_PATH folder = cb_warm_place();

	printf("  a start    warm.mode is \"%s\": ", p->warm_mode == CB_MODE_AUTO ? "auto" : "off");
	if (spec->warm_folder != NULL)
		printf("from an interpreter that is loaded already, once there is one: see cellblock warm\n");
	else if (p->warm_mode == CB_MODE_OFF)
		printf("each kernel loads its own interpreter\n");
	else
		printf("but each kernel loads its own interpreter, for %s\n", cb_jail_spec_cold(spec, folder));
}

/* What most people want to know, before all the rest. */
static void print_summary(const struct cb_policy *p, const struct cb_interpreter *interpreter,
			  const struct cb_jail_spec *spec)
{
	char a[CB_SIZE_TEXT], b[CB_SIZE_TEXT], ipython[96];

	cb_interpreter_ipython_text(interpreter, ipython);
	printf("In short\n  cells      run %s, Python %s, %s\n", cb_shown(interpreter->executable),
	       interpreter->version, ipython);
	for (size_t i = 0; i < interpreter->missing.count; i++)
		printf("             not in the jail: %s\n", cb_shown(interpreter->missing.items[i]));
	for (size_t i = 0; i < interpreter->not_followed.count; i++)
		printf("             not followed: %s\n", interpreter->not_followed.items[i]);
	print_writable(spec);
	printf("  network    %s\n", spec->network == CB_NETWORK_FULL
					    ? "full: the host's"
					    : "none: no address can be reached, not even this machine's");
	printf("  limits     %s of memory, %llu processes; output %s a cell; a cell may run ",
	       cb_size_text(p->limit_memory, a), (unsigned long long)p->limit_pids,
	       p->limit_output > 0 ? cb_size_text(p->limit_output, b) : "without limit");
	if (p->timeout_cell > 0)
		printf("%g seconds\n", p->timeout_cell);
	else
		printf("for ever\n");
	if (p->limit_memory_note[0] != '\0')
		printf("             the memory is %s\n", p->limit_memory_note);
	print_transactions(p);
	print_start(p, spec);
	printf("  refused    if this host offers less than isolation.minimum, \"%s\": see cellblock doctor\n\n",
	       cb_level_name(p->isolation_minimum));
}

static void print_policy(const struct cb_policy *p, const struct cb_jail_spec *spec)
{
	printf("Policy %s\n", cb_shown(p->name));
	for (size_t i = 0; i < p->files.count; i++)
		printf("  from %s\n", cb_shown(p->files.items[i]));
	for (size_t i = 0; i < cb_policy_keys_count; i++) {
		json_auto_t *value = cb_policy_key_get(p, &cb_policy_keys[i]);
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

		printf("  %-20s %s\n", cb_policy_keys[i].name, text != NULL ? cb_shown(text) : "?");
		free(text);
	}
	if (spec->workspace_note != NULL)
		printf("  note: %s\n", cb_shown(spec->workspace_note));
	printf("\n");
	fflush(stdout);
}

static json_t *interpreter_to_json(const struct cb_interpreter *p)
{
	json_t *missing = json_array(), *not_followed = json_array();

	for (size_t i = 0; i < p->missing.count; i++)
		json_array_append_new(missing, json_string(p->missing.items[i]));
	for (size_t i = 0; i < p->not_followed.count; i++)
		json_array_append_new(not_followed, json_string(p->not_followed.items[i]));
	return json_pack("{s:s, s:s, s:s?, s:o, s:o}", "executable", p->executable, "version", p->version,
			 "ipython_version", p->ipython_version, "missing", missing, "not_followed", not_followed);
}

static int print_json(const struct cb_command_jail *jail, char *const argv[], struct cb_err *err)
{
	CB_AUTO_BUF out = CB_BUF_INIT(MAX_STEPS);
	CB_AUTO_BUF errors = CB_BUF_INIT(4096);
	json_t *steps = NULL, *root;
	int status = 0, r = cb_capture(argv, jail->spec_fd, TIMEOUT_MS, &out, &errors, &status);

	if (r == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		steps = json_loadb((const char *)out.data, out.len, 0, NULL);
	if (steps == NULL)
		return cb_err_set(err, r < 0 ? r : -EIO, "explain", NULL, "%s gave no description of the jail: %.*s",
				  argv[0], (int)(errors.len < 400 ? errors.len : 400),
				  errors.data != NULL ? (const char *)errors.data : "");
	root = json_pack("{s:o, s:o, s:o}", "policy", policy_to_json(&jail->policy, &jail->spec), "interpreter",
			 interpreter_to_json(&jail->interpreter), "jail", steps);
	r = root != NULL ? json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6) | JSON_ENSURE_ASCII) : -1;
	json_decref(root);
	putchar('\n');
	return r == 0 ? 0 : cb_err_set(err, -EIO, "explain", NULL, "the description can't be written");
}

static int show(const struct cb_options *o, struct cb_command_jail *jail, struct cb_err *err)
{
	char *argv[] = { jail->install_paths.jail,
			 (char[]){ "explain" },
			 (char[]){ "--spec-fd" },
			 jail->spec_fd_text,
			 o->json ? (char[]){ "--json" } : NULL,
			 NULL };
	int r;

	if (o->json)
		return print_json(jail, argv, err);
	print_summary(&jail->policy, &jail->interpreter, &jail->spec);
	print_policy(&jail->policy, &jail->spec);
	r = cb_replace_process(argv, jail->spec_fd);
	return cb_err_set(err, r, "explain", NULL, "%s can't be started: %s", jail->install_paths.jail, cb_err_text(r));
}

int cb_command_explain(const struct cb_options *o)
{
	struct cb_err err = { 0 };
	struct cb_command_jail jail = { 0 };
	int r = cb_command_plan(o, NULL, &jail, &err);

	if (r == 0)
		r = show(o, &jail, &err);
	cb_command_release(&jail);
	return r < 0 ? cb_command_fail("explain", &err) : 0;
}
