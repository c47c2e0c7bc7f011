/* Makes a jail's description for tests and runs a program with it: spec-make [KEY=VALUE]… -- PROGRAM [ARG]…
 *
 * Keys are the members of struct cb_jail_spec; those that are lists may be given again and again:
 *	argv=WORD  env=NAME=VALUE  bind=ro|rw:SOURCE:TARGET  protect=PATTERN  protect_paths=PATH  home_expose=PATH
 *	warm_preload=MODULE  minimum=none|container|no-cgroup|full
 *	cwd= hostname= root_path= workspace_source= workspace_target= workspace_mode=rw|ro|tmpfs|overlay
 *	network=none|full host_home= warm_folder= limit_…=BYTES
 * Where nothing is said: an empty tmpfs at /workspace as cwd, no network, PATH, HOME and LANG, and limits as a notebook
 * has. An argument {} of PROGRAM becomes the number of the fd. Example:
 *	spec-make argv=/bin/sh argv=-c 'argv=id; ls /' -- build/dev/libexec/cellblock/cellblock-jail run --spec-fd {}
 */
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void die(const char *what, const char *word)
{
	fprintf(stderr, "spec-make: %s: %s\n", what, word);
	exit(2);
}

static void must(int r, const char *word)
{
	if (r < 0)
		die(cb_err_name(r), word);
}

static unsigned choose(const char *value, const char *const *names)
{
	for (unsigned i = 0; names[i] != NULL; i++)
		if (strcmp(value, names[i]) == 0)
			return i;
	die("not one of the known values", value);
	return 0;
}

static void set_string(char **field, const char *value)
{
	free(*field);
	*field = *value != '\0' ? strdup(value) : NULL;
}

static void add_bind(struct cb_jail_spec *spec, const char *value)
{
	char *copy = strdup(value), *source = strchr(copy, ':'),
	     *target = source != NULL ? strchr(source + 1, ':') : NULL;

	if (target == NULL)
		die("not ro|rw:SOURCE:TARGET", value);
	*source++ = *target++ = '\0';
	must(cb_spec_add_bind(spec, source, target,
			      (enum cb_bind_mode)choose(copy, (const char *const[]){ "ro", "rw", NULL }), false,
			      "test"),
	     value);
	free(copy);
}

static bool set_list(struct cb_jail_spec *spec, const char *key, const char *value)
{
	const struct {
		const char *name;
		struct cb_strv *list;
	} lists[] = { { "argv", &spec->argv },
		      { "env", &spec->env },
		      { "protect", &spec->protect },
		      { "protect_paths", &spec->protect_paths },
		      { "home_expose", &spec->home_expose },
		      { "warm_preload", &spec->warm_preload } };

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (strcmp(key, lists[i].name) != 0)
			continue;
		must(cb_strv_add(lists[i].list, value), value);
		return true;
	}
	return false;
}

static bool set_text(struct cb_jail_spec *spec, const char *key, const char *value)
{
	const struct {
		const char *name;
		char **field;
	} texts[] = { { "cwd", &spec->cwd },
		      { "hostname", &spec->hostname },
		      { "root_path", &spec->root_path },
		      { "workspace_source", &spec->workspace_source },
		      { "workspace_target", &spec->workspace_target },
		      { "host_home", &spec->host_home },
		      { "warm_folder", &spec->warm_folder } };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strcmp(key, texts[i].name) != 0)
			continue;
		set_string(texts[i].field, value);
		return true;
	}
	return false;
}

static bool set_limit(struct cb_jail_spec *spec, const char *key, const char *value)
{
	const struct {
		const char *name;
		uint64_t *field;
	} limits[] = { { "limit_memory", &spec->limit_memory },
		       { "limit_cpu", &spec->limit_cpu },
		       { "limit_data", &spec->limit_data },
		       { "limit_pids", &spec->limit_pids },
		       { "limit_open_files", &spec->limit_open_files },
		       { "limit_file_size", &spec->limit_file_size },
		       { "limit_tmp", &spec->limit_tmp },
		       { "limit_shm", &spec->limit_shm },
		       { "limit_inodes", &spec->limit_inodes },
		       { "limit_workspace", &spec->limit_workspace } };

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		if (strcmp(key, limits[i].name) != 0)
			continue;
		*limits[i].field = strtoull(value, NULL, 10);
		return true;
	}
	return false;
}

static void set(struct cb_jail_spec *spec, char *word)
{
	char *value = strchr(word, '=');

	if (value == NULL)
		die("not KEY=VALUE", word);
	*value++ = '\0';
	if (strcmp(word, "bind") == 0)
		add_bind(spec, value);
	else if (strcmp(word, "workspace_mode") == 0)
		spec->workspace_mode = (enum cb_workspace_mode)choose(
			value, (const char *const[]){ "rw", "ro", "tmpfs", "overlay", NULL });
	else if (strcmp(word, "minimum") == 0)
		spec->minimum = (enum cb_isolation_level)choose(
			value, (const char *const[]){ "none", "container", "no-cgroup", "full", NULL });
	else if (strcmp(word, "network") == 0)
		spec->network = (enum cb_network_mode)choose(value, (const char *const[]){ "none", "full", NULL });
	else if (!set_list(spec, word, value) && !set_text(spec, word, value) && !set_limit(spec, word, value))
		die("unknown key", word);
}

static void complete(struct cb_jail_spec *spec, bool mode_given)
{
	if (spec->workspace_source == NULL && !mode_given)
		spec->workspace_mode = CB_WORKSPACE_TMPFS;
	if (spec->hostname == NULL)
		set_string(&spec->hostname, "cellblock");
	if (spec->workspace_target == NULL)
		set_string(&spec->workspace_target,
			   spec->workspace_source != NULL ? spec->workspace_source : "/workspace");
	if (spec->cwd == NULL)
		set_string(&spec->cwd, spec->workspace_target);
	if (spec->env.count == 0) {
		must(cb_strv_add(&spec->env, "PATH=/usr/local/bin:/usr/bin:/bin"), "env");
		must(cb_strv_add(&spec->env, "HOME=" CB_JAIL_HOME), "env");
		must(cb_strv_add(&spec->env, "LANG=C.UTF-8"), "env");
	}
}

int main(int argc, char **argv)
{
	struct cb_jail_spec spec = { .minimum = CB_LEVEL_NO_CGROUP,
				     .notifier = cb_notify_probe() == 0,
				     .limit_pids = 4096,
				     .limit_open_files = 65536,
				     .limit_tmp = 1u << 30,
				     .limit_shm = 1u << 30,
				     .limit_inodes = 1000000 };
	bool mode_given = false;
	char number[16];
	int i, fd = -1;

	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		mode_given = mode_given || strncmp(argv[i], "workspace_mode=", 15) == 0;
		set(&spec, argv[i]);
	}
	if (i + 1 >= argc)
		die("usage", "spec-make [KEY=VALUE]... -- PROGRAM [ARG]...");
	complete(&spec, mode_given);
	must(cb_jail_spec_to_fd(&spec, &fd), "description");
	cb_jail_spec_release(&spec);
	if (fcntl(fd, F_SETFD, 0) < 0)
		die(strerror(errno), "fcntl");
	snprintf(number, sizeof(number), "%d", fd);
	for (int a = i + 1; a < argc; a++)
		if (strcmp(argv[a], "{}") == 0)
			argv[a] = number;
	execv(argv[i + 1], argv + i + 1);
	die(strerror(errno), argv[i + 1]);
	return 2;
}
