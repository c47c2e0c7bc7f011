/* The environment inside a jail.
 *
 * Role: what cells find in os.environ. Trust domain: supervisor, at start. Invariants: built from nothing, so what is
 * not named here or in env.set and env.pass does not get in; a name occurs once, env.set winning over env.pass, and
 * both over our own.
 */
#include "jail_env.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "policy/paths.h"

extern char **environ;

/* Sets NAME=VALUE, replacing an earlier value. Takes ownership of `assignment`; NULL is out of memory. */
static int put(struct cb_strv *env, char *assignment)
{
	size_t n;
	int r;

	if (assignment == NULL)
		return -ENOMEM;
	n = strcspn(assignment, "=") + 1;
	for (size_t i = 0; i < env->count; i++) {
		if (strncmp(env->items[i], assignment, n) == 0) {
			free(env->items[i]);
			env->items[i] = assignment;
			return 0;
		}
	}
	r = cb_strv_add(env, assignment);
	free(assignment);
	return r;
}

static bool passes(const struct cb_strv *names, const char *variable)
{
	size_t n = strcspn(variable, "=");

	for (size_t i = 0; i < names->count; i++) {
		size_t length = strlen(names->items[i]);
		bool star = length > 0 && names->items[i][length - 1] == '*';

		length -= star;
		if ((star ? n >= length : n == length) && strncmp(names->items[i], variable, length) == 0)
			return true;
	}
	return false;
}

static int put_interpreter(struct cb_strv *env, const struct cb_interpreter *interpreter)
{
	CB_AUTO_PATH bin = cb_path_parent(interpreter->executable);
	int r;

	if (bin == NULL)
		return -ENOMEM;
	r = put(env, cb_path_format("PATH=%s:%s", bin, CB_SYSTEM_PATH));
	if (r == 0 && interpreter->venv != NULL)
		r = put(env, cb_path_format("VIRTUAL_ENV=%s", interpreter->venv));
	if (r == 0 && interpreter->conda != NULL)
		r = put(env, cb_path_format("CONDA_PREFIX=%s", interpreter->conda));
	return r;
}

/* `!command` runs under the user's shell, as in a terminal; one that lies elsewhere is not there inside. */
static int put_shell(struct cb_strv *env)
{
	const char *shell = getenv("SHELL");

	if (shell == NULL || (strncmp(shell, "/bin/", 5) != 0 && strncmp(shell, "/usr/", 5) != 0))
		return 0;
	return put(env, cb_path_format("SHELL=%s", shell));
}

/* Libraries that compute in threads begin one for each processor of the host, with memory for each (NumPy 40 MB). With
 * a share of the processors that is slower, and may be more than limits.memory. */
static int put_threads(struct cb_strv *env, double cores)
{
	double threads = ceil(cores);

	if (cores == 0 || threads > (double)sysconf(_SC_NPROCESSORS_ONLN))
		return 0;
	return put(env, cb_path_format("OMP_NUM_THREADS=%.0f", threads));
}

/* By these the guest knows that it is a zygote. */
static bool is_ours(const char *variable)
{
	return strncmp(variable, "CELLBLOCK_ZYGOTE", strlen("CELLBLOCK_ZYGOTE")) == 0;
}

static int put_policy(struct cb_strv *env, const struct cb_policy *policy)
{
	int r = 0;

	for (char **variable = environ; variable != NULL && *variable != NULL && r == 0; variable++)
		if (strchr(*variable, '=') != NULL && !is_ours(*variable) && passes(&policy->env_pass, *variable))
			r = put(env, strdup(*variable));
	for (size_t i = 0; i < policy->env_set.count && r == 0; i++)
		if (!is_ours(policy->env_set.items[i]))
			r = put(env, strdup(policy->env_set.items[i]));
	return r;
}

int cb_jail_env(const struct cb_policy *policy, const struct cb_interpreter *interpreter, const char *session_name,
		struct cb_strv *env)
{
	static const char *const own[] = {
		"PATH=" CB_SYSTEM_PATH, "HOME=" CB_JAIL_HOME, "USER=user", "TMPDIR=/tmp", "LANG=C.UTF-8",
	};
	int r = 0;

	for (size_t i = 0; i < CB_COUNT(own) && r == 0; i++)
		r = put(env, strdup(own[i]));
	if (r == 0 && policy != NULL)
		r = put_shell(env);
	if (r == 0 && policy != NULL)
		r = put_threads(env, policy->limit_cpu);
	if (r == 0 && interpreter != NULL)
		r = put_interpreter(env, interpreter);
	if (r == 0 && session_name != NULL)
		r = put(env, cb_path_format("JPY_SESSION_NAME=%s", session_name));
	if (r == 0 && policy != NULL)
		r = put_policy(env, policy);
	return r;
}
