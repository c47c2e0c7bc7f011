/* What the commands beside the kernel share: loading what a jail is planned from, and failing.
 *
 * Trust domain: supervisor's program, but no secrets and no sockets: these commands end, or become cellblock-jail.
 */
#include "command.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <sys/resource.h>

#include "setup/capture.h"
#include "setup/interpreter_static.h"
#include "setup/jail_spec.h"

#define OPEN_FILES_NEEDED 128 /* a kernel has some 50 open, and some for each copy of the state */

int cb_command_fail(const char *command, const struct cb_err *err)
{
	fprintf(stderr, "cellblock %s: %s: %s%s%s\n", command, err->step, err->text, err->cure[0] != '\0' ? "\n" : "",
		err->cure);
	if (err->code == CB_E_USAGE || strcmp(err->step, "policy") == 0)
		return 2;
	return err->code == CB_E_DENIED && strcmp(err->step, "interpreter") == 0 ? 3 : 1;
}

void cb_command_time_text(double seconds, char ret[16])
{
	if (seconds < 120)
		snprintf(ret, 16, "%.0fs", seconds);
	else if (seconds < 2 * 3600)
		snprintf(ret, 16, "%.0fm", seconds / 60);
	else if (seconds < 48 * 3600)
		snprintf(ret, 16, "%.0fh", seconds / 3600);
	else
		snprintf(ret, 16, "%.0fd", seconds / 86400);
}

int cb_command_open_files(struct cb_err *err)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return cb_err_set(err, -errno, "open files", NULL, "their limit can't be read: %s", strerror(errno));
	if (files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (files.rlim_max >= OPEN_FILES_NEEDED)
		return 0;
	return cb_err_set(err, -EMFILE, "open files",
			  "Raise the limit where Cellblock is started: ulimit -n, LimitNOFILE= of a systemd service, "
			  "--ulimit nofile= of a container.",
			  "%llu open files are allowed (ulimit -Hn), and %d are needed",
			  (unsigned long long)files.rlim_max, OPEN_FILES_NEEDED);
}

int cb_command_check_policy(const struct cb_options *o, enum cb_isolation_level *ret_minimum, struct cb_err *err)
{
	CB_AUTO_STRV sets = { 0 };
	struct cb_policy policy;
	int r = 0;

	for (size_t i = 0; i < o->sets.count && r == 0; i++)
		r = cb_strv_add(&sets, o->sets.items[i]);
	for (size_t i = 0; i < o->env.count && r == 0; i++)
		r = cb_strv_addf(&sets, "env.set.%s", o->env.items[i]);
	if (r == 0)
		r = cb_strv_add(&sets, "workspace.mode=tmpfs");
	r = r < 0 ? cb_err_set(err, r, "policy", NULL, "out of memory")
		  : cb_policy_load(o->policy, sets.items, sets.count, &policy, err);
	if (r == 0) {
		if (ret_minimum != NULL)
			*ret_minimum = policy.isolation_minimum;
		cb_policy_release(&policy);
	}
	return r;
}

/* Policy and interpreter of the options; `ask`: also what only the interpreter knows. Without --python and an active
 * venv there is none (executable NULL) unless asked for. */
static int load(const struct cb_options *o, const char *jail, bool ask, struct cb_policy *ret_policy,
		struct cb_interpreter *ret_interpreter, struct cb_err *err)
{
	const char *venv = getenv("VIRTUAL_ENV");
	int r = cb_policy_load(o->policy, o->sets.items, o->sets.count, ret_policy, err);

	if (r < 0)
		return r;
	if (ask)
		r = cb_interpreter_find(o->python, o->facts, jail, ret_policy->isolation_minimum, ret_interpreter, err);
	else if (o->python != NULL || (venv != NULL && venv[0] == '/'))
		r = cb_interpreter_static(o->python, ret_interpreter, err);
	if (r < 0)
		cb_policy_release(ret_policy);
	return r;
}

int cb_command_plan(const struct cb_options *o, char *const *argv, struct cb_command_jail *ret_jail, struct cb_err *err)
{
	struct cb_command_jail *j = ret_jail;
	int r;

	j->spec_fd = -1;
	snprintf(j->spec_fd_text, sizeof(j->spec_fd_text), "%d", CB_CAPTURE_FD);
	r = cb_install_paths_find(&j->install_paths, err);
	if (r == 0)
		r = load(o, j->install_paths.jail, argv == NULL, &j->policy, &j->interpreter, err);
	if (r < 0)
		return r;
	struct cb_jail_spec_input in = { .policy = &j->policy,
					 .interpreter = j->interpreter.executable != NULL ? &j->interpreter : NULL,
					 .guest_dir = argv == NULL ? j->install_paths.guest : NULL,
					 .argv = argv };

	r = cb_jail_spec_make(&in, &j->spec, err);
	if (r < 0) /* but for the command and memory it is the policy that asks for what can't be */
		return strcmp(err->step, "command") == 0 || strcmp(err->step, CB_JAIL_SPEC_STEP) == 0
			       ? r
			       : (err->code = CB_E_USAGE);
	r = cb_jail_spec_to_fd(&j->spec, &j->spec_fd);
	return r == 0 ? 0
		      : cb_err_set(err, r, CB_JAIL_SPEC_STEP, NULL, "the jail's description can't be passed on: %s",
				   cb_err_text(r));
}

void cb_command_release(struct cb_command_jail *jail)
{
	cb_fd_close(&jail->spec_fd);
	cb_jail_spec_release(&jail->spec);
	cb_interpreter_release(&jail->interpreter);
	cb_policy_release(&jail->policy);
	cb_install_paths_release(&jail->install_paths);
}
