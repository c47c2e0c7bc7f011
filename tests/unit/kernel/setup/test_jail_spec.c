/* From policy to the jail's description: workspace and home rule, binds, what is protected, what is refused. */
#include "setup/jail_spec.h"

#include "policy/parse.h"
#include "policy/paths.h"
#include "setup/warm_place.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64]; /* HOME/, HOME/work/, guest/, python/ */

static struct cb_interpreter python;

static int plan_argv(const char *which, char *const *sets, size_t nsets, char *const *argv, struct cb_jail_spec *spec,
		     struct cb_err *err)
{
	CB_AUTO_PATH guest = cb_path_format("%s/guest", folder);
	struct cb_policy policy;
	int r;

	*err = (struct cb_err){ 0 };
	r = cb_policy_load(which, sets, nsets, &policy, err);
	assert_int_equal(r, 0);
	struct cb_jail_spec_input in = { .policy = &policy, .interpreter = &python, .guest_dir = guest, .argv = argv };

	r = cb_jail_spec_make(&in, spec, err);
	cb_policy_release(&policy);
	return r;
}

static int plan(const char *which, struct cb_jail_spec *spec, struct cb_err *err, char *set)
{
	char *sets[] = { set };

	return plan_argv(which, sets, set != NULL, NULL, spec, err);
}

static void go(const char *below)
{
	CB_AUTO_PATH path = cb_path_format("%s/%s", folder, below);

	assert_int_equal(chdir(path), 0);
}

static bool holds(const struct cb_strv *list, const char *item)
{
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->items[i], item) == 0)
			return true;
	}
	return false;
}

/* What cells are told of the policy. */
static const char *says(const struct cb_jail_spec *spec)
{
	for (size_t i = 0; i < spec->env.count; i++) {
		if (strncmp(spec->env.items[i], "CELLBLOCK_POLICY_SAYS=", 22) == 0)
			return spec->env.items[i];
	}
	return "";
}

static void test_notebook(void **state)
{
	CB_AUTO_PATH work = cb_path_format("%s/home/work", folder);
	CB_AUTO_PATH prefix = cb_path_format("%s/python", folder);
	struct cb_jail_spec spec;
	struct cb_err err;
	char packages[] = "packages.mode=ro", project[] = "workspace.path=project";

	(void)state;
	go("home/work");
	assert_int_equal(plan("notebook", &spec, &err, NULL), 0);
	assert_int_equal(spec.workspace_mode, CB_WORKSPACE_RW);
	assert_string_equal(spec.workspace_source, work);
	assert_string_equal(spec.workspace_target, work);
	assert_string_equal(spec.cwd, work);
	assert_null(spec.workspace_note);
	assert_int_equal(spec.network, CB_NETWORK_NONE);
	assert_int_equal(spec.argv.count, 2);
	assert_string_equal(spec.argv.items[0], python.executable);
	assert_string_equal(spec.argv.items[1], "/run/cellblock/guest/boot.py");
	assert_true(holds(&spec.protect, ".git"));
	assert_true(holds(&spec.protect_paths, prefix));
	assert_true(spec.home_expose.count > 0);
	assert_true(spec.limit_data > 0 && spec.limit_pids == 4096 && spec.limit_shm > 0 && spec.limit_tmp > 0 &&
		    spec.limit_inodes > 0);
	for (size_t i = 0; i < spec.nbinds; i++)
		assert_int_equal(spec.binds[i].mode,
				 strcmp(spec.binds[i].source, prefix) == 0 ? CB_BIND_SESSION : CB_BIND_RO);
	cb_jail_spec_release(&spec);
	assert_int_equal(plan("notebook", &spec, &err, packages), 0);
	for (size_t i = 0; i < spec.nbinds; i++)
		assert_int_equal(spec.binds[i].mode, CB_BIND_RO);
	assert_null(strstr(says(&spec), "workspace.project"));
	cb_jail_spec_release(&spec);
	assert_int_equal(plan("notebook", &spec, &err, project), 0);
	assert_non_null(strstr(says(&spec), "\"workspace.project\":true"));
	cb_jail_spec_release(&spec);
}

/* A ceiling's workspace.size where the policy has 0: in memory that is limits.tmp, and does not grow. */
static void test_a_size_from_a_ceiling(void **state)
{
	static const struct {
		char *mode, *tmp;
		uint64_t size;
	} tried[] = {
		{ "workspace.mode=overlay", "limits.tmp=1G", 1ull << 30 },
		{ "workspace.mode=tmpfs", "limits.tmp=1G", 1ull << 30 },
		{ "workspace.mode=overlay", "limits.tmp=20G", 10ull << 30 },
		{ "workspace.mode=rw", "limits.tmp=1G", 10ull << 30 },
	};
	CB_AUTO_PATH guest = cb_path_format("%s/guest", folder);

	(void)state;
	go("home/work");
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		char *sets[] = { tried[i].mode, tried[i].tmp, "workspace.size=10G" };
		struct cb_jail_spec spec;
		struct cb_policy policy;
		struct cb_err err = { 0 };

		assert_int_equal(cb_policy_load("notebook", sets, 3, &policy, &err), 0);
		policy.workspace_size_capped = true;
		struct cb_jail_spec_input in = { .policy = &policy, .interpreter = &python, .guest_dir = guest };

		assert_int_equal(cb_jail_spec_make(&in, &spec, &err), 0);
		assert_int_equal(spec.limit_workspace, tried[i].size);
		cb_policy_release(&policy);
		cb_jail_spec_release(&spec);
	}
}

static void test_agent_starts(void **state)
{
	struct cb_jail_spec spec;
	struct cb_err err;
	char rw[] = "workspace.mode=rw";

	(void)state;
	go("home/work");
	assert_int_equal(plan("agent", &spec, &err, NULL), 0);
	assert_int_equal(spec.workspace_mode, CB_WORKSPACE_OVERLAY);
	assert_string_equal(spec.workspace_target, "/workspace");
	assert_non_null(spec.workspace_source);
	assert_true(holds(&spec.protect, ".git"));
	assert_int_equal(spec.limit_workspace, 256u << 20);
	assert_null(spec.workspace_note);
	assert_int_equal(spec.limit_data, 512u << 20);
	cb_jail_spec_release(&spec);
	assert_int_equal(plan("agent", &spec, &err, rw), 0);
	assert_int_equal(spec.workspace_mode, CB_WORKSPACE_RW);
	assert_string_equal(spec.workspace_target, "/workspace");
	assert_null(spec.workspace_note);
	cb_jail_spec_release(&spec);
}

static void test_home_rule(void **state)
{
	CB_AUTO_PATH home = cb_path_format("%s/home", folder);
	CB_AUTO_PATH set = cb_path_format("workspace.path=%s/home", folder);
	struct cb_jail_spec spec;
	struct cb_err err;
	char root[] = "workspace.path=/", usr[] = "workspace.path=/usr/share", tmpfs[] = "workspace.mode=tmpfs";
	char *sets[] = { set, tmpfs };

	(void)state;
	go("home");
	assert_int_equal(plan("notebook", &spec, &err, NULL), 0);
	assert_int_equal(spec.workspace_mode, CB_WORKSPACE_TMPFS);
	assert_null(spec.workspace_source);
	assert_string_equal(spec.workspace_target, home);
	assert_non_null(strstr(spec.workspace_note, "home"));
	assert_non_null(strstr(spec.workspace_note, "--workspace"));
	cb_jail_spec_release(&spec);
	/* named, it is refused */
	assert_int_equal(plan("notebook", &spec, &err, set), CB_E_DENIED);
	assert_non_null(strstr(err.cure, "--workspace"));
	assert_int_equal(plan("notebook", &spec, &err, root), CB_E_DENIED);
	assert_int_equal(plan("notebook", &spec, &err, usr), CB_E_DENIED);
	/* but an empty folder there is harmless */
	assert_int_equal(plan_argv("notebook", sets, 2, NULL, &spec, &err), 0);
	cb_jail_spec_release(&spec);
}

static void test_workspace_mistakes(void **state)
{
	struct cb_jail_spec spec;
	struct cb_err err;
	char missing[] = "workspace.path=/tmp/no-such-folder-here", file[] = "workspace.path=/etc/passwd";

	(void)state;
	assert_int_equal(plan("notebook", &spec, &err, missing), -ENOENT);
	assert_non_null(strstr(err.text, "no-such-folder-here"));
	assert_true(plan("notebook", &spec, &err, file) < 0);
}

static void test_mounts(void **state)
{
	CB_AUTO_PATH good = cb_path_format("mounts=[{\"source\": \"%s/guest\", \"target\": \"/data\"}]", folder);
	CB_AUTO_PATH home =
		cb_path_format("mounts=[{\"source\": \"%s/home\", \"target\": \"/data\", \"mode\": \"rw\"}]", folder);
	CB_AUTO_PATH taken = cb_path_format("mounts=[{\"source\": \"%s/guest\", \"target\": \"/usr/lib\"}]", folder);
	CB_AUTO_PATH proc = cb_path_format("mounts=[{\"source\": \"%s/guest\", \"target\": \"/proc/sys\"}]", folder);
	CB_AUTO_PATH ours =
		cb_path_format("mounts=[{\"source\": \"%s/guest\", \"target\": \"/run/cellblock/guest\"}]", folder);
	char gone[] = "mounts=[{\"source\": \"/no/such\"}]";
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(plan("notebook", &spec, &err, good), 0);
	assert_string_equal(spec.binds[spec.nbinds - 1].target, "/data");
	cb_jail_spec_release(&spec);
	assert_int_equal(plan("notebook", &spec, &err, home), CB_E_DENIED);
	assert_int_equal(plan("notebook", &spec, &err, taken), CB_E_DENIED);
	assert_int_equal(plan("notebook", &spec, &err, proc), CB_E_DENIED);
	assert_int_equal(plan("notebook", &spec, &err, ours), CB_E_DENIED);
	assert_int_equal(plan("notebook", &spec, &err, gone), -ENOENT);
}

static void test_history_in_workspace(void **state)
{
	CB_AUTO_PATH beside = cb_path_format("history.file=%s/home/work/h.sqlite", folder);
	CB_AUTO_PATH deeper = cb_path_format("history.file=%s/home/work/sub/h.sqlite", folder);
	CB_AUTO_PATH absent = cb_path_format("history.file=%s/home/work/new/h.sqlite", folder);
	CB_AUTO_PATH above = cb_path_format("history.file=%s/home/h.sqlite", folder);
	CB_AUTO_PATH far = cb_path_format("history.file=%s/home/other/new/h.sqlite", folder);
	CB_AUTO_PATH sub = cb_path_format("%s/home/work/sub", folder);
	CB_AUTO_PATH home = cb_path_format("%s/home", folder);
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(plan("notebook", &spec, &err, beside), CB_E_DENIED);
	assert_non_null(strstr(err.text, "history.file"));
	assert_int_equal(plan("notebook", &spec, &err, deeper), 0);
	assert_true(holds(&spec.protect_paths, sub)); /* with what SQLite puts beside it */
	cb_jail_spec_release(&spec);
	assert_int_equal(plan("notebook", &spec, &err, absent), CB_E_DENIED); /* a cell could make the folder first */
	assert_non_null(strstr(err.text, "lies in the workspace itself"));
	for (size_t i = 0; i < 2; i++) { /* cells see nothing of a folder above */
		assert_int_equal(plan("notebook", &spec, &err, i == 0 ? above : far), 0);
		assert_false(holds(&spec.protect_paths, home)); /* nor is all below it read-only for that */
		cb_jail_spec_release(&spec);
	}
}

/* What SQLite makes lies beside what a link leads to. */
static void test_history_by_a_link(void **state)
{
	CB_AUTO_PATH link = cb_path_format("%s/home/h.sqlite", folder);
	CB_AUTO_PATH way = cb_path_format("%s/home/work/way", folder);
	CB_AUTO_PATH sub = cb_path_format("%s/home/work/sub", folder);
	CB_AUTO_PATH shown = cb_path_format("%s/home/shown", folder);
	CB_AUTO_PATH history = cb_path_format("history.file=%s", link);
	CB_AUTO_PATH by_way = cb_path_format("history.file=%s/h.sqlite", way);
	CB_AUTO_PATH mount = cb_path_format("mounts=[{\"source\": \"%s\", \"mode\": \"rw\"}]", shown);
	char *sets[] = { history, mount };
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(symlink("work/h.sqlite", link), 0);
	assert_int_equal(plan("notebook", &spec, &err, history), CB_E_DENIED);
	assert_non_null(strstr(err.text, "/home/work/h.sqlite, which lies in the workspace itself"));
	assert_int_equal(unlink(link) | symlink("work/sub/h.sqlite", link), 0);
	assert_int_equal(plan("notebook", &spec, &err, history), 0);
	assert_true(holds(&spec.protect_paths, sub) && holds(&spec.protect_paths, link));
	cb_jail_spec_release(&spec);
	assert_int_equal(unlink(link) | symlink("shown/h.sqlite", link), 0);
	assert_int_equal(plan_argv("notebook", sets, 2, NULL, &spec, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "can't be writable"));
	assert_int_equal(unlink(link), 0);
	/* a folder that a cell put in its place would be the history's */
	assert_int_equal(symlink(shown, way), 0);
	assert_int_equal(plan("notebook", &spec, &err, by_way), 0);
	assert_true(holds(&spec.protect_paths, way) && holds(&spec.protect_paths, shown));
	cb_jail_spec_release(&spec);
	assert_int_equal(unlink(way), 0);
}

/* What it leads to comes to be when a cell makes it. */
static void test_a_protected_link_that_leads_nowhere(void **state)
{
	CB_AUTO_PATH link = cb_path_format("%s/home/.ipython", folder);
	CB_AUTO_PATH dots = cb_path_format("%s/home/work/dots", folder);
	CB_AUTO_PATH target = cb_path_format("%s/home/work/dots/ipython", folder);
	CB_AUTO_PATH loop = cb_path_format("%s/home/.jupyter", folder);
	CB_AUTO_PATH more = cb_path_format("%s/home/dots", folder);
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(symlink("work/dots/ipython", link), 0);
	assert_int_equal(symlink(".jupyter", loop), 0);
	for (int i = 0; i < 2; i++) { /* the second time by one more link, on the way */
		assert_int_equal(plan("notebook", &spec, &err, NULL), 0);
		assert_true(holds(&spec.protect_paths, target));
		cb_jail_spec_release(&spec);
		if (i == 0)
			assert_int_equal(unlink(link) | symlink("dots/ipython", link) | symlink(dots, more), 0);
	}
	assert_int_equal(unlink(more), 0);
	assert_int_equal(unlink(link) | unlink(loop), 0);
}

static void test_a_writable_mount_of_what_others_run(void **state)
{
	CB_AUTO_PATH packages = cb_path_format("%s/python/packages", folder);
	CB_AUTO_PATH mount = cb_path_format("mounts=[{\"source\": \"%s\", \"mode\": \"rw\"}]", packages);
	CB_AUTO_PATH seen = cb_path_format("mounts=[{\"source\": \"%s\", \"mode\": \"ro\"}]", packages);
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(mkdir(packages, 0755), 0);
	assert_int_equal(plan("notebook", &spec, &err, mount), CB_E_DENIED);
	assert_non_null(strstr(err.text, "it lies in"));
	assert_int_equal(plan("notebook", &spec, &err, seen), 0);
	cb_jail_spec_release(&spec);
	assert_int_equal(rmdir(packages), 0);
}

/* Jupyter would start what a cell wrote there. */
static void test_a_workspace_in_what_jupyter_obeys(void **state)
{
	static const struct {
		const char *name, *value, *start;
		bool refused;
	} tried[] = {
		{ "HOME", "home", "home/.jupyter", true },
		{ "HOME", "home/x", "home/.jupyter", false },
		{ "HOME", "home", "home/.jupyter/custom", true },
		{ "JUPYTER_DATA_DIR", "home/work", "home/work", true },
		{ "JUPYTER_DATA_DIR", "home/work", "home/work/sub", true },
		{ "JUPYTER_DATA_DIR", "home/work/sub", "home/work", false },
		{ "JUPYTER_DATA_DIR", "home/wor", "home/work", false },
		{ "HOME", "home", "home/.local/etc/jupyter", true },
		{ "HOME", "home", "home/.local/etc", false },
		{ "JUPYTER_CONFIG_DIR", "home/work", "home/work", true },
		{ "JUPYTER_CONFIG_PATH", "home/work", "home/work/sub", true },
		{ "JUPYTER_CONFIG_PATH", "home/work/sub", "home/work", false },
		{ "IPYTHONDIR", "home/work", "home/work", true },
		{ "JUPYTER_PATH", "home/work", "home/work/kernels", true },
		{ "JUPYTER_PATH", "home/work", "home/work", false },
		{ "XDG_CACHE_HOME", "home", "home/cellblock", true },
		{ "XDG_DATA_HOME", "home", "home/cellblock/x", true }, /* histories */
		{ "XDG_CACHE_HOME", "home", "home/work", false },
	};
	static const char *const made[] = { "home/.jupyter",   "home/.jupyter/custom", "home/work/kernels",
					    "home/cellblock",  "home/cellblock/x",     "home/.local",
					    "home/.local/etc", "home/.local/etc/jupyter" };
	CB_AUTO_PATH home = cb_path_format("%s/home", folder);
	char ro[] = "workspace.mode=ro", overlay[] = "workspace.mode=overlay";
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, made[i]);

		assert_int_equal(mkdir(path, 0755), 0);
	}
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		bool refused = tried[i].refused;
		CB_AUTO_PATH value = cb_path_format("%s/%s", folder, tried[i].value);
		CB_AUTO_PATH named = cb_path_format("workspace.path=%s/%s", folder, tried[i].start);

		go(tried[i].start);
		setenv(tried[i].name, value, 1);
		assert_int_equal(plan("notebook", &spec, &err, NULL), 0);
		assert_int_equal(spec.workspace_mode, refused ? CB_WORKSPACE_TMPFS : CB_WORKSPACE_RW);
		assert_true((spec.workspace_source == NULL) == refused && (spec.workspace_note != NULL) == refused);
		cb_jail_spec_release(&spec);
		assert_int_equal(plan("notebook", &spec, &err, overlay), 0);
		assert_int_equal(spec.workspace_mode, refused ? CB_WORKSPACE_TMPFS : CB_WORKSPACE_OVERLAY);
		cb_jail_spec_release(&spec);
		assert_int_equal(plan("notebook", &spec, &err, ro), 0); /* seeing it is harmless */
		assert_int_equal(spec.workspace_mode, CB_WORKSPACE_RO);
		cb_jail_spec_release(&spec);
		assert_int_equal(plan("notebook", &spec, &err, named), refused ? CB_E_DENIED : 0);
		if (refused)
			assert_non_null(strstr(err.text, "which Jupyter or Cellblock takes"));
		else
			cb_jail_spec_release(&spec);
		unsetenv(tried[i].name);
		setenv("HOME", home, 1);
	}
	go("home");
	for (size_t i = sizeof(made) / sizeof(made[0]); i-- > 0;) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, made[i]);

		assert_int_equal(rmdir(path), 0);
	}
}

/* A policy that is called by its name would be what a cell wrote there. */
static void test_the_config_path_is_protected(void **state)
{
	CB_AUTO_PATH list = cb_path_format("relative:%s/home/none::%s/home/work/etc/jupyter", folder, folder);
	CB_AUTO_PATH inside = cb_path_format("%s/home/work/etc/jupyter", folder);
	CB_AUTO_PATH first = cb_path_format("%s/home/none", folder);
	CB_AUTO_PATH set = cb_path_format("mounts=[{\"source\": \"%s/home/shown\", \"mode\": \"rw\"}]", folder);
	CB_AUTO_PATH held = cb_path_format("%s/home/shown/x/jupyter", folder);
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	setenv("JUPYTER_CONFIG_PATH", list, 1);
	assert_int_equal(plan("notebook", &spec, &err, NULL), 0);
	assert_true(holds(&spec.protect_paths, first));
	assert_true(holds(&spec.protect_paths, inside)); /* there is none yet */
	assert_false(holds(&spec.protect_paths, "relative"));
	cb_jail_spec_release(&spec);
	assert_int_equal(plan("notebook", &spec, &err, set), 0);
	cb_jail_spec_release(&spec);
	setenv("JUPYTER_CONFIG_PATH", held, 1);
	assert_int_equal(plan("notebook", &spec, &err, set), CB_E_DENIED);
	assert_non_null(strstr(err.text, held));
	unsetenv("JUPYTER_CONFIG_PATH");
}

/* Kernels take compiled modules from there. */
static void test_the_cache_is_protected(void **state)
{
	static const char *const refused[] = { "home/.cache", "home/.cache/cellblock", "home/.cache/cellblock/0",
					       "home/spec/pycache" };
	CB_AUTO_PATH here = cb_path_format("%s/home/work/sub", folder);
	CB_AUTO_PATH inside = cb_path_format("%s/home/work/sub/cellblock", folder);
	CB_AUTO_PATH spec_folder = cb_path_format("%s/home/spec", folder);
	CB_AUTO_PATH guest_cache = cb_path_format("%s/home/spec/pycache", folder);
	CB_AUTO_PATH guest = cb_path_format("%s/guest", folder);
	CB_AUTO_PATH other = cb_path_format("%s/home/.cache/pip", folder);
	struct cb_jail_spec spec;
	struct cb_policy policy;
	struct cb_err err = { 0 };

	(void)state;
	go("home");
	assert_int_equal(mkdir(".cache", 0755) | mkdir(".cache/cellblock", 0755) | mkdir(".cache/pip", 0755), 0);
	assert_int_equal(mkdir(".cache/cellblock/0", 0755) | mkdir("spec", 0755) | mkdir("spec/pycache", 0755), 0);
	go("home/work");
	for (size_t i = 0; i <= sizeof(refused) / sizeof(refused[0]); i++) {
		bool last = i == sizeof(refused) / sizeof(refused[0]);
		CB_AUTO_PATH source = last ? strdup(other) : cb_path_format("%s/%s", folder, refused[i]);
		CB_AUTO_PATH mount = cb_path_format("mounts=[{\"source\": \"%s\", \"mode\": \"rw\"}]", source);

		assert_int_equal(cb_policy_load("notebook", &mount, 1, &policy, &err), 0);
		struct cb_jail_spec_input in = {
			.policy = &policy, .interpreter = &python, .guest_dir = guest, .guest_cache = guest_cache
		};

		assert_int_equal(cb_jail_spec_make(&in, &spec, &err), last ? 0 : CB_E_DENIED);
		assert_true(last || strstr(err.text, "can't be writable: it ") != NULL);
		cb_policy_release(&policy);
	}
	assert_true(holds(&spec.protect_paths, spec_folder)); /* of kernel.json and interpreter.json, too */
	cb_jail_spec_release(&spec);
	setenv("XDG_CACHE_HOME", here, 1);
	assert_int_equal(plan("notebook", &spec, &err, NULL), 0);
	unsetenv("XDG_CACHE_HOME");
	assert_true(holds(&spec.protect_paths, inside));
	cb_jail_spec_release(&spec);
	go("home");
	assert_int_equal(rmdir(".cache/cellblock/0") | rmdir(".cache/cellblock") | rmdir(".cache/pip"), 0);
	assert_int_equal(rmdir(".cache") | rmdir("spec/pycache") | rmdir("spec"), 0);
}

/* Where cells can put a link in the place of a source, they would choose what the next kernel mounts there. */
static void test_mounts_that_cells_could_exchange(void **state)
{
	CB_AUTO_PATH data = cb_path_format("%s/home/data", folder);
	CB_AUTO_PATH models = cb_path_format("%s/home/data/models", folder);
	CB_AUTO_PATH link = cb_path_format("%s/home/link", folder);
	CB_AUTO_PATH outside = cb_path_format("%s/home/outside", folder);
	CB_AUTO_PATH rw = cb_path_format("{\"source\": \"%s\", \"mode\": \"rw\"}", data);
	CB_AUTO_PATH below = cb_path_format("mounts=[%s, {\"source\": \"%s\", \"target\": \"/m\"}]", rw, models);
	CB_AUTO_PATH by_link = cb_path_format("mounts=[%s, {\"source\": \"%s/x\", \"target\": \"/m\"}]", rw, link);
	CB_AUTO_PATH same = cb_path_format("mounts=[%s, {\"source\": \"%s\", \"target\": \"/m\"}]", rw, data);
	CB_AUTO_PATH beside = cb_path_format("mounts=[%s, {\"source\": \"%s\"}]", rw, outside);
	CB_AUTO_PATH x = cb_path_format("%s/x", outside);
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(mkdir(data, 0755) | mkdir(models, 0755) | mkdir(outside, 0755) | mkdir(x, 0755), 0);
	assert_int_equal(plan("notebook", &spec, &err, below), CB_E_DENIED);
	assert_non_null(strstr(err.text, models));
	assert_non_null(strstr(err.text, "the way to it leads through"));
	/* it was exchanged already; and a link of the user's own that leads there first */
	assert_int_equal(rmdir(models) | symlink(outside, models), 0);
	assert_int_equal(plan("notebook", &spec, &err, below), CB_E_DENIED);
	assert_int_equal(symlink("data/models", link), 0);
	assert_int_equal(plan("notebook", &spec, &err, by_link), CB_E_DENIED);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(plan("notebook", &spec, &err, i == 0 ? same : beside), 0);
		cb_jail_spec_release(&spec);
	}
	assert_int_equal(unlink(link) | unlink(models) | rmdir(data) | rmdir(x) | rmdir(outside), 0);
}

/* Without namespaces nobody judges which links cells make in the workspace. */
static void test_a_mount_by_a_link_of_the_workspace(void **state)
{
	CB_AUTO_PATH link = cb_path_format("%s/home/work/link", folder);
	CB_AUTO_PATH sub = cb_path_format("%s/home/work/sub", folder);
	CB_AUTO_PATH by_link = cb_path_format("mounts=[{\"source\": \"%s\", \"target\": \"/data\"}]", link);
	CB_AUTO_PATH inside = cb_path_format("mounts=[{\"source\": \"%s\", \"target\": \"/data\"}]", sub);
	char less[] = "isolation.minimum=container", ro[] = "workspace.mode=ro";
	char *weak[] = { by_link, less }, *strong[] = { by_link }, *read_only[] = { by_link, less, ro };
	char *own[] = { inside, less };
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(symlink("../../guest", link), 0);
	assert_int_equal(plan_argv("notebook", weak, 2, NULL, &spec, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "the way to it leads through"));
	assert_int_equal(plan_argv("notebook", strong, 1, NULL, &spec, &err), 0);
	cb_jail_spec_release(&spec);
	assert_int_equal(plan_argv("notebook", read_only, 3, NULL, &spec, &err), 0);
	cb_jail_spec_release(&spec);
	assert_int_equal(plan_argv("notebook", own, 2, NULL, &spec, &err), 0); /* refused at that level alone */
	cb_jail_spec_release(&spec);
	assert_int_equal(unlink(link), 0);
}

static void test_connection_file_in_workspace(void **state)
{
	CB_AUTO_PATH file = cb_path_format("%s/home/work/kernel.json", folder);
	CB_AUTO_PATH guest = cb_path_format("%s/guest", folder);
	struct cb_policy policy;
	struct cb_jail_spec spec;
	struct cb_err err = { 0 };
	FILE *f = fopen(file, "w");

	(void)state;
	assert_non_null(f);
	fclose(f);
	go("home/work");
	assert_int_equal(cb_policy_load("notebook", NULL, 0, &policy, &err), 0);
	/* by a relative name too: clients may pass one */
	struct cb_jail_spec_input in = {
		.policy = &policy, .interpreter = &python, .guest_dir = guest, .connection_file = "kernel.json"
	};

	assert_int_equal(cb_jail_spec_make(&in, &spec, &err), 0);
	assert_true(holds(&spec.protect_paths, file));
	assert_string_equal(spec.binds[spec.nbinds - 1].source, "/dev/null");
	assert_string_equal(spec.binds[spec.nbinds - 1].target, file);
	cb_jail_spec_release(&spec);
	cb_policy_release(&policy);
	unlink(file);
}

/* What home.expose shows is mounted apart, and seen all the same. */
static void test_exposed(void **state)
{
	CB_AUTO_PATH log = cb_path_format("audit.file=%s/home/shown/new/a.jsonl", folder);
	CB_AUTO_PATH beside = cb_path_format("audit.file=%s/home/a.jsonl", folder);
	char expose[] = "home.expose=[\"shown\"]";
	char *sets[] = { expose, log };
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(plan_argv("notebook", sets, 2, NULL, &spec, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "lies in home.expose"));
	sets[1] = beside;
	assert_int_equal(plan_argv("notebook", sets, 2, NULL, &spec, &err), 0);
	cb_jail_spec_release(&spec);
}

static int plan_connection(char *set, struct cb_jail_spec *spec, struct cb_err *err)
{
	CB_AUTO_PATH file = cb_path_format("%s/home/shown/kernel.json", folder);
	CB_AUTO_PATH guest = cb_path_format("%s/guest", folder);
	struct cb_policy policy;
	FILE *f = fopen(file, "w");
	int r;

	assert_non_null(f);
	fclose(f);
	*err = (struct cb_err){ 0 };
	assert_int_equal(cb_policy_load("notebook", &set, 1, &policy, err), 0);
	struct cb_jail_spec_input in = {
		.policy = &policy, .interpreter = &python, .guest_dir = guest, .connection_file = file
	};

	r = cb_jail_spec_make(&in, spec, err);
	cb_policy_release(&policy);
	unlink(file);
	return r;
}

static void test_connection_file_seen(void **state)
{
	CB_AUTO_PATH mount = cb_path_format("mounts=[{\"source\": \"%s/home\", \"target\": \"/data\"}]", folder);
	char expose[] = "home.expose=[\"shown\"]";
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(plan_connection(expose, &spec, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "signing key"));
	assert_int_equal(plan_connection(mount, &spec, &err), 0);
	assert_string_equal(spec.binds[spec.nbinds - 1].source, "/dev/null");
	assert_string_equal(spec.binds[spec.nbinds - 1].target, "/data/shown/kernel.json");
	cb_jail_spec_release(&spec);
}

static void test_command(void **state)
{
	char sh[] = "sh", minus_c[] = "-c", missing[] = "no-such-program";
	char *found[] = { sh, minus_c, NULL }, *not_found[] = { missing, NULL };
	struct cb_jail_spec spec;
	struct cb_err err;

	(void)state;
	go("home/work");
	assert_int_equal(plan_argv("notebook", NULL, 0, found, &spec, &err), 0);
	assert_int_equal(spec.argv.count, 2);
	assert_string_equal(spec.argv.items[0], "/usr/bin/sh");
	cb_jail_spec_release(&spec);
	assert_int_equal(plan_argv("notebook", NULL, 0, not_found, &spec, &err), -ENOENT);
	assert_string_equal(err.step, "command");
}

static void expect_warm(char **sets, size_t nsets, bool warm)
{
	struct cb_jail_spec spec;
	struct cb_err err;

	assert_int_equal(plan_argv("agent", sets, nsets, NULL, &spec, &err), 0);
	assert_int_equal(spec.warm_folder != NULL, warm);
	assert_int_equal(spec.warm_preload.count, warm ? 2 : 0);
	cb_jail_spec_release(&spec);
}

static void test_warm(void **state)
{
	CB_AUTO_PATH guest = cb_path_format("%s/guest", folder);
	CB_AUTO_PATH place = cb_warm_place();
	char on[] = "warm.mode=auto", full[] = "network.mode=full", tmpfs[] = "workspace.mode=tmpfs", sh[] = "sh";
	char root[96], off[] = "warm.mode=off", run[] = "mounts=[{\"source\": \"/run\", \"target\": \"/host\"}]";
	char *sets[] = { on, tmpfs, NULL }, *none[] = { off }, *command[] = { sh, NULL };
	struct cb_jail_spec spec;
	struct cb_policy policy;
	struct cb_err err;

	(void)state;
	go("home/work");
	expect_warm(none, 1, false);
	expect_warm(sets, 2, true);
	sets[2] = full;
	expect_warm(sets, 3, false);
	snprintf(root, sizeof(root), "root.path=%s/home", folder);
	sets[2] = root;
	CB_AUTO_PATH usr = cb_path_format("%s/home/usr", folder);
	assert_int_equal(mkdir(usr, 0755), 0);
	expect_warm(sets, 3, false);
	assert_int_equal(rmdir(usr), 0);
	sets[2] = run;
	expect_warm(sets, 3, strncmp(place, "/run/", 5) != 0); /* seen inside */
	assert_int_equal(plan_argv("agent", sets, 2, command, &spec, &err), 0);
	assert_null(spec.warm_folder);
	cb_jail_spec_release(&spec);
	assert_int_equal(cb_policy_load("agent", sets, 2, &policy, &err), 0);
	struct cb_jail_spec_input in = { .policy = &policy, .interpreter = &python, .guest_dir = guest };

	assert_int_equal(cb_jail_spec_make(&in, &spec, &err), 0);
	assert_string_equal(spec.warm_folder, place);
	assert_string_equal(spec.warm_preload.items[0], "numpy");
	cb_jail_spec_release(&spec);
	in.bash = true;
	assert_int_equal(cb_jail_spec_make(&in, &spec, &err), 0);
	assert_null(spec.warm_folder);
	cb_jail_spec_release(&spec);
	cb_policy_release(&policy);
}

/* An ordinary user's zygotes may lie in what is the workspace: there they are not used. */
static void test_warm_in_workspace(void **state)
{
	CB_AUTO_PATH inside = cb_path_format("%s/home/work/sub", folder);
	char on[] = "warm.mode=auto";
	char *sets[] = { on };

	(void)state;
	go("home/work");
	setenv("XDG_RUNTIME_DIR", inside, 1);
	expect_warm(sets, 1, cb_is_host_root());
	unsetenv("XDG_RUNTIME_DIR");
	expect_warm(sets, 1, true);
}

static const char *const below[] = { "home", "home/work", "home/work/sub", "home/shown", "guest", "python" };

static int make_folder(void **state)
{
	CB_AUTO_PATH home = NULL;

	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-plan-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, below[i]);

		if (mkdir(path, 0755) < 0)
			return -1;
	}
	home = cb_path_format("%s/home", folder);
	setenv("HOME", home, 1);
	unsetenv("CELLBLOCK_POLICY");
	unsetenv("XDG_DATA_HOME");
	unsetenv("XDG_CACHE_HOME");
	unsetenv("XDG_RUNTIME_DIR");
	python.executable = cb_path_format("%s/python/bin/python3", folder);
	CB_AUTO_PATH prefix = cb_path_format("%s/python", folder);

	return cb_strv_add(&python.prefixes, prefix);
}

static int remove_folder(void **state)
{
	(void)state;
	cb_interpreter_release(&python);
	for (size_t i = sizeof(below) / sizeof(below[0]); i-- > 0;) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, below[i]);

		rmdir(path);
	}
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notebook),
		cmocka_unit_test(test_agent_starts),
		cmocka_unit_test(test_a_size_from_a_ceiling),
		cmocka_unit_test(test_home_rule),
		cmocka_unit_test(test_workspace_mistakes),
		cmocka_unit_test(test_mounts),
		cmocka_unit_test(test_mounts_that_cells_could_exchange),
		cmocka_unit_test(test_a_mount_by_a_link_of_the_workspace),
		cmocka_unit_test(test_history_in_workspace),
		cmocka_unit_test(test_history_by_a_link),
		cmocka_unit_test(test_a_protected_link_that_leads_nowhere),
		cmocka_unit_test(test_a_writable_mount_of_what_others_run),
		cmocka_unit_test(test_the_config_path_is_protected),
		cmocka_unit_test(test_the_cache_is_protected),
		cmocka_unit_test(test_a_workspace_in_what_jupyter_obeys),
		cmocka_unit_test(test_connection_file_in_workspace),
		cmocka_unit_test(test_exposed),
		cmocka_unit_test(test_connection_file_seen),
		cmocka_unit_test(test_command),
		cmocka_unit_test(test_warm),
		cmocka_unit_test(test_warm_in_workspace),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
