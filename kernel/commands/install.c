/* `cellblock install`: writes a kernelspec for an interpreter.
 *
 * Role: kernel.json with absolute paths, logos, and the interpreter's facts beside it; says what of the search path the
 * jail will not see. Trust domain: supervisor's program, no secrets. Invariants: nothing is written before interpreter
 * and policy are known to be good; every file is replaced whole, kernel.json last.
 */
#include <cellblock/fd.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>

#include "command.h"
#include "kernelspec.h"
#include "policy/paths.h"
#include "setup/files.h"
#include "setup/guest_cache.h"

#define STEP "install"
#define MAX_LOGO (1u << 20)
#define OLDEST_MINOR 9u /* of the Pythons of docs/compatibility.md */
#define NEWEST_MINOR 14u

static int add_word(json_t *argv, const char *word)
{
	return json_array_append_new(argv, json_string(word));
}

static json_t *make_argv(const struct cb_options *o, const struct cb_install_paths *install_paths,
			 const struct cb_interpreter *interpreter, const char *facts)
{
	CB_AUTO_PATH program = cb_install_paths_program();
	json_t *argv = json_pack("[s, s, s, s, s, s]", program != NULL ? program : install_paths->self, "kernel",
				 "--python", interpreter->executable, "--facts", facts);
	CB_AUTO_PATH policy = NULL;
	int bad = argv == NULL;

	if (o->bash)
		bad |= add_word(argv, "--language") || add_word(argv, "bash");
	if (o->policy != NULL) {
		policy = strchr(o->policy, '/') != NULL ? cb_path_absolute(o->policy, NULL) : strdup(o->policy);
		bad |= policy == NULL || add_word(argv, "--policy") || add_word(argv, policy);
	}
	for (size_t i = 0; i < o->sets.count && !bad; i++)
		bad = add_word(argv, "--set") || add_word(argv, o->sets.items[i]);
	/* The jail lets no variable in that is not named: a variable for the kernel is meant for the cells. */
	for (size_t i = 0; i < o->env.count && !bad; i++) {
		CB_AUTO_PATH set = cb_path_format("env.set.%s", o->env.items[i]);

		bad = set == NULL || add_word(argv, "--set") || add_word(argv, set);
	}
	bad = bad || add_word(argv, "-f") || add_word(argv, "{connection_file}");
	if (bad) {
		json_decref(argv);
		return NULL;
	}
	return argv;
}

static char *make_spec(const struct cb_options *o, const struct cb_install_paths *install_paths,
		       const struct cb_interpreter *interpreter, const char *facts)
{
	CB_AUTO_PATH title = o->bash ? strdup("Bash (Cellblock)")
				     : cb_path_format("Python %.*s (Cellblock)",
						      (int)(strrchr(interpreter->version, '.') - interpreter->version),
						      interpreter->version);
	json_t *argv = make_argv(o, install_paths, interpreter, facts), *env = json_object(), *spec;
	char *text;

	for (size_t i = 0; i < o->env.count; i++) {
		const char *equals = strchr(o->env.items[i], '=');
		CB_AUTO_PATH name = strndup(o->env.items[i], (size_t)(equals - o->env.items[i]));

		if (name != NULL)
			json_object_set_new(env, name, json_string(equals + 1));
	}
	spec = json_pack("{s:o, s:s, s:s, s:s, s:o, s:s, s:{s:b, s:s}}", "argv", argv, "display_name",
			 o->display_name != NULL ? o->display_name : title, "language", o->bash ? "bash" : "python",
			 "interrupt_mode", "message", "env", env, "kernel_protocol_version", "5.5", "metadata",
			 "debugger", !o->bash && interpreter->debugpy, "supported_encryption", "curve");
	text = spec != NULL ? json_dumps(spec, JSON_INDENT(1)) : NULL;
	json_decref(spec);
	return text;
}

/* Logos lie in PREFIX/share/cellblock/kernelspec, in an installed tree and in a build tree alike. A kernelspec works
 * without. */
static void copy_logos(const char *folder)
{
	const char *const *names = cb_kernelspec_logos;
	CB_AUTO_PATH prefix = cb_install_paths_prefix();

	for (size_t i = 0; prefix != NULL && i < CB_KERNELSPEC_LOGOS; i++) {
		CB_AUTO_PATH from = cb_path_format("%s/share/cellblock/kernelspec/%s", prefix, names[i]);
		CB_AUTO_PATH to = cb_path_format("%s/%s", folder, names[i]);
		CB_AUTO_FD fd = from != NULL ? open(from, O_RDONLY | O_CLOEXEC) : -1;
		CB_AUTO_PATH data = NULL;
		size_t len = 0;

		if (fd < 0 || to == NULL || cb_fd_read_all(fd, MAX_LOGO, &data, &len) < 0 ||
		    cb_file_replace(to, data, len, 0644) < 0)
			fprintf(stderr, "cellblock install: no logo: %s\n", from != NULL ? from : names[i]);
	}
}

/* What an earlier `install` found for another interpreter, or the same one elsewhere: every jail would be given it. */
static void forget_cache(const char *path)
{
	CB_AUTO_FD folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (folder >= 0)
		(void)cb_kernelspec_remove_cache(folder);
}

static int write_folder(const struct cb_options *o, const struct cb_install_paths *install_paths,
			const struct cb_interpreter *interpreter, const char *folder, struct cb_err *err)
{
	CB_AUTO_PATH facts = cb_path_format("%s/interpreter.json", folder);
	CB_AUTO_PATH kernel = cb_path_format("%s/kernel.json", folder);
	CB_AUTO_PATH spec = facts != NULL ? make_spec(o, install_paths, interpreter, facts) : NULL;
	int r;

	if (facts == NULL || kernel == NULL || spec == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory, or a text that is not UTF-8");
	r = cb_file_make_folders(folder, 0755);
	forget_cache(folder);
	if (r == 0)
		r = cb_interpreter_save(interpreter, facts);
	if (r == 0) {
		CB_AUTO_PATH cache = cb_guest_cache_folder(facts);
		struct cb_err ignored = { 0 };

		if (cache == NULL ||
		    cb_guest_cache_write(interpreter, install_paths->jail, install_paths->guest, !o->bash, cache,
					 &ignored) < 0)
			fprintf(stderr, "cellblock install: cells will start slower: %s\n",
				cache == NULL ? "there is no folder for compiled modules" : ignored.text);
		copy_logos(folder);
		r = cb_file_replace(kernel, spec, strlen(spec), 0644);
	}
	if (r < 0 && !cb_path_is_file(kernel)) /* what is no kernelspec `uninstall` would not know */
		(void)cb_kernelspec_remove_files(folder);
	return r < 0 ? cb_err_set(err, r, STEP, "Choose another place with --user, --sys-prefix or --prefix.",
				  "%s can't be written: %s", folder, strerror(-r))
		     : 0;
}

/* Jupyter in an environment looks there before it looks among the user's kernelspecs: one of this name there would be
 * taken instead of ours, and a notebook that asks for python3 run outside of any jail. */
static void warn_of_hidden(const struct cb_interpreter *interpreter, const char *name)
{
	CB_AUTO_PATH own = cb_install_paths_prefix();
	const char *prefixes[] = { own, interpreter->venv, interpreter->conda, getenv("VIRTUAL_ENV") };

	for (size_t i = 0; i < CB_COUNT(prefixes); i++) {
		const char *prefix = prefixes[i] != NULL ? prefixes[i] : "";
		CB_AUTO_PATH venv = cb_path_format("%s/pyvenv.cfg", prefix);
		CB_AUTO_PATH conda = cb_path_format("%s/conda-meta", prefix);
		CB_AUTO_PATH other = cb_path_format("%s/share/jupyter/kernels/%s/kernel.json", prefix, name);
		bool said = false;

		for (size_t j = 0; j < i; j++)
			said |= prefixes[j] != NULL && strcmp(prefixes[j], prefix) == 0;
		if (said || venv == NULL || conda == NULL || other == NULL || !cb_path_is_file(other) ||
		    (!cb_path_is_file(venv) && !cb_path_is_dir(conda)))
			continue;
		fprintf(stderr,
			"A Jupyter that runs from %s will take the kernelspec %s that is there, not this one.\n"
			"To replace that one run the same command with --prefix '%s'.\n",
			cb_shown(prefix), cb_shown(name), cb_shown(prefix));
	}
}

static void report(const struct cb_options *o, const struct cb_interpreter *interpreter, const char *folder)
{
	unsigned minor = 0;
	char ipython[96];

	printf("Installed kernelspec %s in %s\n", cb_shown(strrchr(folder, '/') + 1), cb_shown(folder));
	if (o->bash) {
		printf("Bash %s, driven by Python %s (%s)\n", interpreter->bash_version, interpreter->version,
		       cb_shown(interpreter->executable));
		return;
	}
	cb_interpreter_ipython_text(interpreter, ipython);
	printf("Python %s (%s), %s%s\n", interpreter->version, cb_shown(interpreter->executable), ipython,
	       cb_interpreter_is_plain(interpreter) ? ", without magics and rich display" : "");
	(void)sscanf(interpreter->version, "3.%u", &minor);
	if (minor < OLDEST_MINOR || minor > NEWEST_MINOR)
		fprintf(stderr, "Cellblock is made for Python 3.%u to 3.%u: this one was not tried.\n", OLDEST_MINOR,
			NEWEST_MINOR);
	for (size_t i = 0; i < interpreter->not_followed.count; i++)
		fprintf(stderr, "Not shown to the jail: %s.\n", interpreter->not_followed.items[i]);
	if (interpreter->missing.count == 0)
		return;
	fprintf(stderr, "The jail will not see, unless its workspace or a mount of the policy holds it:\n");
	for (size_t i = 0; i < interpreter->missing.count; i++)
		fprintf(stderr, "  %s\n", cb_shown(interpreter->missing.items[i]));
	fprintf(stderr, "Install such packages into the interpreter's own folder, or add \"mounts\" to the policy.\n");
}

int cb_command_install(const struct cb_options *o)
{
	struct cb_err err = { 0 };
	struct cb_install_paths install_paths = { 0 };
	struct cb_interpreter interpreter = { 0 };
	enum cb_isolation_level minimum = CB_LEVEL_NO_CGROUP;
	CB_AUTO_PATH folder = NULL;
	int r = cb_install_paths_find(&install_paths, &err);

	if (r == 0)
		r = cb_command_check_policy(o, &minimum, &err);
	if (r == 0)
		r = cb_interpreter_find(o->python, NULL, install_paths.jail, minimum, &interpreter, &err);
	if (r == 0 && o->bash && interpreter.bash_version == NULL)
		r = cb_err_set(&err, -ENOENT, STEP, "Install bash.", "there is no bash in the jail");
	if (r == 0)
		r = cb_kernelspec_folder(o, &interpreter, &folder, &err);
	if (r == 0)
		r = write_folder(o, &install_paths, &interpreter, folder, &err);
	if (r == 0)
		report(o, &interpreter, folder);
	if (r == 0 && o->prefix == NULL && !o->sys_prefix)
		warn_of_hidden(&interpreter, strrchr(folder, '/') + 1);
	cb_interpreter_release(&interpreter);
	cb_install_paths_release(&install_paths);
	return r < 0 ? cb_command_fail("install", &err) : 0;
}
