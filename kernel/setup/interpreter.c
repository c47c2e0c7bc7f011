/* Facts about the chosen interpreter: static ones always anew, the others from the facts file or by asking.
 *
 * Role: cb_interpreter_find, and the facts file beside a kernelspec. Trust domain: supervisor, at start. Invariants: a
 * facts file counts only if its stamp (path, real path, size, mtime, inode of the executable; in the cache also the
 * times of its folders of packages) is the one of now; it goes through the same strict parser as a guest's answer; an
 * unwritable or broken one only costs time.
 */
#include "interpreter.h"

#include <cellblock/buffer.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <sys/stat.h>

#include "files.h"
#include "interpreter_ask.h"
#include "interpreter_static.h"
#include "policy/paths.h"

#define MAX_FACTS (256u << 10)

char *cb_interpreter_cache(void)
{
	const char *cache = getenv("XDG_CACHE_HOME");
	CB_AUTO_PATH home = cb_path_home();

	if (cache != NULL && cache[0] == '/')
		return cb_path_format("%s/cellblock", cache);
	return home != NULL ? cb_path_format("%s/.cache/cellblock", home) : NULL;
}

/* Each interpreter has a folder there with each installation of Cellblock. */
static char *facts_in_cache(const struct cb_interpreter *p, const char *jail_program)
{
	const char *const parts[] = { p->executable, jail_program, CELLBLOCK_VERSION };
	CB_AUTO_PATH cache = cb_interpreter_cache();
	CB_AUTO_PATH folder = NULL;
	uint64_t hash = CB_HASH; /* names only, nothing is trusted for it */

	for (size_t i = 0; i < 3; i++)
		hash = cb_span_hash((struct cb_span){ parts[i], strlen(parts[i]) + 1 }, hash);
	folder = cache != NULL ? cb_path_format("%s/%016llx", cache, (unsigned long long)hash) : NULL;
	return folder != NULL && !cb_file_is_link(folder) ? cb_path_format("%s/interpreter.json", folder) : NULL;
}

/* When packages came or went. A kernelspec's facts are written anew by the next `install`; those in the cache have
 * nobody who would. */
static json_t *packages_of(const struct cb_interpreter *p)
{
	static const char *const system[] = { "/usr", "/usr/local" };
	json_t *times = json_array();

	for (size_t i = 0; i < p->prefixes.count + 2; i++) {
		CB_AUTO_PATH pattern =
			cb_path_format("%s/lib/python3*/*-packages", i < 2 ? system[i] : p->prefixes.items[i - 2]);
		glob_t found = { 0 };
		struct stat st;

		if (pattern == NULL || glob(pattern, 0, NULL, &found) != 0)
			continue;
		for (size_t j = 0; j < found.gl_pathc; j++)
			if (stat(found.gl_pathv[j], &st) == 0)
				json_array_append_new(times, json_integer((json_int_t)st.st_mtim.tv_sec * 1000000000 +
									  (json_int_t)st.st_mtim.tv_nsec));
		globfree(&found);
	}
	return times;
}

static json_t *stamp_of(const struct cb_interpreter *p)
{
	CB_AUTO_PATH real = cb_path_real(p->executable);
	struct stat st;

	if (real == NULL || stat(real, &st) < 0)
		return NULL;
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o*}", "path", p->executable, "real_path", real, "size",
			 (json_int_t)st.st_size, "mtime_ns",
			 (json_int_t)st.st_mtim.tv_sec * 1000000000 + (json_int_t)st.st_mtim.tv_nsec, "inode",
			 (json_int_t)st.st_ino, "packages", p->in_cache ? packages_of(p) : NULL);
}

static int read_facts(const char *path, struct cb_interpreter *p)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CB_AUTO_PATH text = NULL;
	CB_AUTO_PATH answer = NULL;
	json_t *root, *stamp;
	size_t len = 0;
	int r;

	if (fd < 0)
		return -errno;
	r = cb_fd_read_all(fd, MAX_FACTS, &text, &len);
	if (r < 0)
		return r;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	stamp = stamp_of(p);
	r = stamp != NULL && json_equal(stamp, json_object_get(root, "stamp")) ? 0 : CB_E_UNKNOWN;
	json_decref(stamp);
	if (json_object_get(json_object_get(root, "answer"), "debugpy") == NULL)
		r = CB_E_UNKNOWN; /* an older release's, which did not ask for it */
	if (r == 0) {
		answer = json_dumps(json_object_get(root, "answer"), JSON_COMPACT);
		r = answer != NULL ? cb_interpreter_take_answer(p, answer, strlen(answer), NULL) : CB_E_SYNTAX;
	}
	json_decref(root);
	return r;
}

int cb_interpreter_save(const struct cb_interpreter *i, const char *facts_file)
{
	json_t *missing = json_array(), *root;
	CB_AUTO_PATH text = NULL;

	for (size_t n = 0; n < i->missing.count; n++)
		json_array_append_new(missing, json_string(i->missing.items[n]));
	root = json_pack("{s:o, s:{s:s, s:s?, s:b, s:s?, s:o}}", "stamp", stamp_of(i), "answer", "version", i->version,
			 "ipython", i->ipython_version, "debugpy", i->debugpy, "bash", i->bash_version, "missing",
			 missing);
	text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
	json_decref(root);
	return text != NULL ? cb_file_replace(facts_file, text, strlen(text), 0644) : -ENOMEM;
}

static int save_facts(const struct cb_interpreter *p)
{
	CB_AUTO_PATH folder = cb_path_parent(p->facts);
	int r = !p->in_cache ? 0 : folder != NULL ? cb_file_make_folders(folder, 0700) : -ENOMEM;

	return r < 0 ? r : cb_interpreter_save(p, p->facts);
}

int cb_interpreter_find(const char *executable, const char *facts_file, const char *jail_program,
			enum cb_isolation_level minimum, struct cb_interpreter *ret_interpreter, struct cb_err *err)
{
	struct cb_interpreter p = { 0 };
	int r = cb_interpreter_static(executable, &p, err);

	/* it asks for all walls, but not for limits by cgroups */
	p.minimum = minimum < CB_LEVEL_NO_CGROUP ? minimum : CB_LEVEL_NO_CGROUP;
	if (r < 0)
		return r;
	p.in_cache = facts_file != NULL && strcmp(facts_file, CB_FACTS_CACHE) == 0;
	p.facts = p.in_cache ? facts_in_cache(&p, jail_program) : facts_file != NULL ? strdup(facts_file) : NULL;
	if (p.facts == NULL || read_facts(p.facts, &p) < 0) {
		r = cb_interpreter_ask(&p, jail_program, err);
		p.asked = true;
		if (r == 0 && p.facts != NULL && save_facts(&p) < 0)
			cb_log(CB_LOG_INFO, "facts about the interpreter could not be kept in %s", p.facts);
	}
	if (r < 0) {
		cb_interpreter_release(&p);
		return r;
	}
	*ret_interpreter = p;
	return 0;
}
