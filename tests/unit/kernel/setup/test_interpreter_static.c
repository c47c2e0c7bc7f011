/* Which program is meant and where it lives: venvs, links hop by hop, conda, pyenv, and what is too much to show. */
#include "setup/interpreter_static.h"

#include "homeless.h"
#include "policy/paths.h"
#include "setup/jail_spec.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void at(const char *name, char path[200])
{
	snprintf(path, 200, "%s/%s", folder, name);
}

static void put(const char *name, const char *text, mode_t mode)
{
	char path[200];
	FILE *f;

	at(name, path);
	unlink(path);
	for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void link_to(const char *target, const char *name)
{
	char path[200];

	at(name, path);
	unlink(path);
	put(name, "", 0644); /* makes the folders */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(target, path), 0);
}

static bool shows(const struct cb_interpreter *p, const char *name)
{
	char path[200];

	at(name, path);
	for (size_t i = 0; i < p->prefixes.count; i++) {
		if (strcmp(p->prefixes.items[i], path) == 0)
			return true;
	}
	return false;
}

static int find(const char *name, struct cb_interpreter *p, struct cb_err *err)
{
	char path[200];

	at(name, path);
	*err = (struct cb_err){ 0 };
	return cb_interpreter_static(path, p, err);
}

/* base/: a Python of its own, like pyenv's. */
static void make_base(void)
{
	put("base/bin/python3.11", "ELF", 0755);
	link_to("python3.11", "base/bin/python3");
	link_to("python3", "base/bin/python");
	put("base/lib/python3.11/os.py", "", 0644);
}

static void test_own_prefix(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200];

	(void)state;
	make_base();
	assert_int_equal(find("base/bin/python3", &p, &err), 0);
	at("base/bin/python3", path);
	assert_string_equal(p.executable, path); /* links are not resolved */
	assert_null(p.venv);
	assert_null(p.conda);
	assert_int_equal(p.prefixes.count, 1);
	assert_true(shows(&p, "base"));
	cb_interpreter_release(&p);
}

static void test_venv(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200], cfg[300];

	(void)state;
	make_base();
	link_to("base", "base-link"); /* the venv was made with a base named by a link: both names are needed */
	at("base-link/bin", path);
	snprintf(cfg, sizeof(cfg), "home = %s\ninclude-system-site-packages = false\n", path);
	put("venv/pyvenv.cfg", cfg, 0644);
	at("base-link/bin/python3", path);
	link_to(path, "venv/bin/python");
	assert_int_equal(find("venv/bin/python", &p, &err), 0);
	at("venv", path);
	assert_string_equal(p.venv, path);
	assert_true(shows(&p, "venv"));
	assert_true(shows(&p, "base-link"));
	assert_true(shows(&p, "base"));
	cb_interpreter_release(&p);

	put("venv/pyvenv.cfg", "home = /no/such/bin\n", 0644);
	assert_true(find("venv/bin/python", &p, &err) < 0);
	assert_non_null(strstr(err.cure, "anew"));
	put("venv/pyvenv.cfg", "nothing\n", 0644);
	assert_true(find("venv/bin/python", &p, &err) < 0);
}

/* After `make altinstall`, and from some packages: python3.12 is there, and no python3. */
static void test_venv_of_a_python_without_its_short_name(void **state)
{
	static const char *const lines[] = { "version = 3.12.3", "version_info = 3.12.3.final.0", "Version=3.12",
					     "version = 3", "version = 3.12/../../x", "" };
	struct cb_interpreter p;
	struct cb_err err;
	char home[200], python[200], cfg[300];

	(void)state;
	put("alt/bin/python3.12", "ELF", 0755);
	put("alt/bin/python3.12-config", "#!", 0755);
	put("alt/lib/python3.12/os.py", "", 0644);
	at("alt/bin", home);
	at("alt/bin/python3.12", python);
	for (int copies = 0; copies < 2; copies++) {
		for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
			bool there = !copies || (i != 3 && i != 5);

			snprintf(cfg, sizeof(cfg), "home = %s\n%s\n", home, lines[i]);
			put("of-alt/pyvenv.cfg", cfg, 0644);
			if (copies)
				put("of-alt/bin/python", "ELF", 0755);
			else
				link_to("python3.12", "of-alt/bin/python");
			if (!copies)
				link_to(python, "of-alt/bin/python3.12");
			assert_int_equal(find("of-alt/bin/python", &p, &err), there ? 0 : -ENOENT);
			assert_true(!there || shows(&p, "alt"));
			assert_true(there || strstr(err.text, "is gone from") != NULL);
			if (there)
				cb_interpreter_release(&p);
		}
	}
}

static void test_link_outside_any_prefix(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200];

	(void)state;
	make_base();
	at("base/bin/python3", path);
	link_to(path, "tools/bin/py"); /* ~/bin/py: the folder around it is none of the jail's business */
	assert_int_equal(find("tools/bin/py", &p, &err), 0);
	assert_string_equal(p.executable, path);
	assert_false(shows(&p, "tools"));
	assert_true(shows(&p, "base"));
	cb_interpreter_release(&p);
	link_to("loop2", "tools/loop1");
	link_to("loop1", "tools/loop2");
	assert_true(find("tools/loop1", &p, &err) < 0);
}

static void test_conda(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200];

	(void)state;
	put("conda/envs/x/bin/python3.12", "ELF", 0755);
	link_to("python3.12", "conda/envs/x/bin/python");
	put("conda/envs/x/conda-meta/history", "", 0644);
	assert_int_equal(find("conda/envs/x/bin/python", &p, &err), 0);
	at("conda/envs/x", path);
	assert_string_equal(p.conda, path);
	assert_null(p.venv);
	assert_true(shows(&p, "conda/envs/x"));
	assert_false(shows(&p, "conda"));
	cb_interpreter_release(&p);
}

static void test_pyenv_shim(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200];

	(void)state;
	put("pyenv/shims/python3", "#!/bin/sh\nexec pyenv exec python3\n", 0755);
	put("pyenv/versions/3.11.7/bin/python3", "ELF", 0755);
	put("pyenv/versions/3.11.7/lib/python3.11/os.py", "", 0644);
	put("pyenv/version", "3.11.7\n", 0644);
	unsetenv("PYENV_VERSION");
	assert_int_equal(find("pyenv/shims/python3", &p, &err), 0);
	at("pyenv/versions/3.11.7/bin/python3", path);
	assert_string_equal(p.executable, path);
	cb_interpreter_release(&p);
	put("pyenv/version", "system\n", 0644);
	assert_int_equal(find("pyenv/shims/python3", &p, &err), CB_E_DENIED);
	assert_non_null(strstr(err.cure, "--python"));
	put("pyenv/version", "../../x\n", 0644);
	assert_int_equal(find("pyenv/shims/python3", &p, &err), CB_E_DENIED);
}

static void test_library_elsewhere(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200];

	(void)state;
	put("split/bin/python3", "ELF", 0755);
	put("libraries/python3.11/os.py", "", 0644);
	put("packages/x.py", "", 0644);
	at("libraries", path);
	link_to(path, "split/lib");
	at("packages", path);
	link_to(path, "libraries/python3.11/site-packages");
	assert_int_equal(find("split/bin/python3", &p, &err), 0);
	assert_true(shows(&p, "split"));
	assert_true(shows(&p, "libraries"));
	assert_false(shows(&p, "packages")); /* no mark of a Python's: it is named */
	assert_int_equal(p.not_followed.count, 1);
	assert_non_null(strstr(p.not_followed.items[0], "/packages"));
	cb_interpreter_release(&p);

	put("other/lib/python3.11/os.py", "", 0644);
	put("other/lib/python3.11/site-packages/x.py", "", 0644);
	at("other/lib/python3.11/site-packages", path);
	link_to(path, "libraries/python3.11/site-packages");
	assert_int_equal(find("split/bin/python3", &p, &err), 0);
	assert_true(shows(&p, "other/lib/python3.11/site-packages"));
	assert_false(shows(&p, "other"));
	assert_int_equal(p.not_followed.count, 0);
	cb_interpreter_release(&p);
}

/* What a cell can write into an environment: names of folders and programs that are no Python's. */
static void test_links_to_what_is_no_pythons(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200], cfg[300];

	(void)state;
	make_base();
	put(".ssh/id", "", 0600);
	put("tool", "#!/bin/sh", 0755);
	at("base/bin", path);
	snprintf(cfg, sizeof(cfg), "home = %s\n", path);
	put("bad/pyvenv.cfg", cfg, 0644);
	at("base/bin/python3", path);
	link_to(path, "bad/bin/python");
	at(".ssh", path);
	link_to(path, "bad/lib64");
	put("bad/lib/python3.11/x.py", "", 0644);
	link_to(path, "bad/lib/python3.11/site-packages");
	link_to(path, "bad/lib/python3.12\x1b[2J");
	assert_int_equal(find("bad/bin/python", &p, &err), 0);
	assert_false(shows(&p, ".ssh"));
	assert_int_equal(p.not_followed.count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_non_null(strstr(p.not_followed.items[i], "/.ssh"));
		assert_null(strchr(p.not_followed.items[i], '\x1b'));
	}
	cb_interpreter_release(&p);

	at("tool", path);
	link_to(path, "bad/bin/python");
	assert_int_equal(find("bad/bin/python", &p, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "no Python's own folder"));

	at("base/bin/python3", path);
	link_to(path, "bad/bin/python");
	at(".ssh", path);
	link_to(path, "h/python3"); /* a folder is no program, though it may be entered */
	at("h", path);
	snprintf(cfg, sizeof(cfg), "home = %s\n", path);
	put("bad/pyvenv.cfg", cfg, 0644);
	assert_true(find("bad/bin/python", &p, &err) < 0);
	at("tool", path);
	link_to(path, "h/python3");
	assert_int_equal(find("bad/bin/python", &p, &err), CB_E_DENIED);
}

/* A Python that was installed into ~/.local: what else lies there is not its own. */
static void test_shared_folder_of_the_home(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;

	(void)state;
	put(".local/bin/python3", "ELF", 0755);
	put(".local/lib/python3.11/os.py", "", 0644);
	put(".local/share/keyrings/login", "", 0600);
	setenv("HOME", folder, 1);
	assert_int_equal(find(".local/bin/python3", &p, &err), 0);
	setenv("HOME", "/nonexistent", 1);
	assert_true(shows(&p, ".local/bin"));
	assert_true(shows(&p, ".local/lib"));
	assert_false(shows(&p, ".local"));
	cb_interpreter_release(&p);
}

/* Between the look and the plan an interpreter is asked: time enough for a cell of another kernel. */
static void test_link_that_changes_after_the_look(void **state)
{
	struct cb_jail_spec spec = { 0 };
	struct cb_interpreter p;
	struct cb_err err;
	char path[200], away[200];

	(void)state;
	make_base();
	put(".ssh/id", "", 0600);
	assert_int_equal(find("base/bin/python3", &p, &err), 0);
	at("base", path);
	at("base-away", away);
	assert_int_equal(rename(path, away), 0);
	link_to(".ssh", "base");
	assert_int_equal(cb_jail_spec_interpreter(&p, &spec), 0);
	assert_int_equal(spec.nbinds, 0);
	cb_jail_spec_release(&spec);
	cb_interpreter_release(&p);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rename(away, path), 0);
}

static void test_home_as_prefix(void **state)
{
	struct cb_interpreter p;
	struct cb_err err;
	char path[200];

	(void)state;
	put("me/bin/python3", "ELF", 0755);
	put("me/lib/python3.11/os.py", "", 0644);
	at("me", path);
	setenv("HOME", path, 1);
	assert_int_equal(find("me/bin/python3", &p, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "home"));
	setenv("HOME", folder, 1);
}

static void test_system(void **state)
{
	struct cb_interpreter p;
	struct cb_err err = { 0 };

	(void)state;
	if (access("/usr/bin/python3", X_OK) < 0)
		skip();
	assert_int_equal(cb_interpreter_static("/usr/bin/python3", &p, &err), 0);
	assert_int_equal(p.prefixes.count, 0); /* the jail has /usr anyway */
	cb_interpreter_release(&p);
	assert_int_equal(cb_interpreter_static("/bin/python3", &p, &err), 0);
	assert_int_equal(p.prefixes.count, 0);
	cb_interpreter_release(&p);
}

static void test_choice(void **state)
{
	struct cb_interpreter p;
	struct cb_err err = { 0 };
	char path[200], cfg[300];

	(void)state;
	make_base();
	at("base/bin", path);
	setenv("PATH", path, 1);
	assert_int_equal(cb_interpreter_static(NULL, &p, &err), 0);
	at("base/bin/python3", path);
	assert_string_equal(p.executable, path);
	cb_interpreter_release(&p);
	at("base/bin", path);
	snprintf(cfg, sizeof(cfg), "home = %s\n", path);
	put("active/pyvenv.cfg", cfg, 0644);
	at("base/bin/python3", path);
	link_to(path, "active/bin/python");
	at("active", path);
	setenv("VIRTUAL_ENV", path, 1);
	assert_int_equal(cb_interpreter_static(NULL, &p, &err), 0);
	assert_string_equal(p.venv, path);
	cb_interpreter_release(&p);
	unsetenv("VIRTUAL_ENV");
	assert_true(cb_interpreter_static("no-such-python", &p, &err) < 0);
	assert_non_null(strstr(err.text, "no-such-python"));
	assert_true(cb_interpreter_static("/no/such", &p, &err) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_prefix),
		cmocka_unit_test(test_venv),
		cmocka_unit_test(test_venv_of_a_python_without_its_short_name),
		cmocka_unit_test(test_link_outside_any_prefix),
		cmocka_unit_test(test_conda),
		cmocka_unit_test(test_pyenv_shim),
		cmocka_unit_test(test_library_elsewhere),
		cmocka_unit_test(test_links_to_what_is_no_pythons),
		cmocka_unit_test(test_shared_folder_of_the_home),
		cmocka_unit_test(test_link_that_changes_after_the_look),
		cmocka_unit_test(test_home_as_prefix),
		cmocka_unit_test(test_system),
		cmocka_unit_test(test_choice),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
