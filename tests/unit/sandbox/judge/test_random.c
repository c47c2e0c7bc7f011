/* Random sequences of what a cell may ask for, done where the judge allows it. Whatever their order: what was protected
 * stays as it was, no protected name comes into being, no repository, no environment. The checker walks the whole
 * folder and shares no code with the judge. CB_SEED repeats one sequence. */
#include "../../../../sandbox/judge/judge.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#define RUNS 25
#define STEPS 1500
#define DEPTH 5

static char *pattern_items[] = { ".git", ".vscode", ".envrc", "docs/conf.py", "pyvenv.cfg", "conda-meta", NULL };
static const struct cb_strv patterns = { pattern_items, 6 };
static char *path_items[] = { "own/kernel", NULL };
static const struct cb_strv paths = { path_items, 1 };

/* What the host has; files hold their own index, so that they are known wherever a parent is moved to. */
static const char *const host_files[] = {
	"repo/.git/HEAD",      "repo/.git/config",	   "repo/.git/hooks/pre-commit", "repo/.git/objects/ab/cd",
	"repo/.git/refs/main", "repo/.git/index",	   "repo/.git/modules/m/HEAD",	 "repo/.git/modules/m/config",
	"repo/.git/modules/m/objects/x", "repo/.git/modules/m/refs/x", "bare/HEAD",	 "bare/config",
	"bare/objects/x",      "bare/refs/x",		   "env/pyvenv.cfg",		 "env/bin/python",
	"a/.vscode/s.json",    "a/docs/conf.py",	   ".envrc",			 "own/kernel/x",
	"a/file",	       "b/file",		   "b/link/f",
};
#define FILES (sizeof(host_files) / sizeof(*host_files))

static const char *const names[] = {
	"a",	   "b",	      "c",	    ".git",	  ".Git",      "HEAD",	  "head",	 "objects",  "refs",
	"Refs",	   "config",  "hooks",	    "commondir",  ".vscode",   ".VSCODE", ".envrc",	 "docs",     "conf.py",
	"DOCS",	   "info",    "alternates", "pyvenv.cfg", "bin",       "env",	  "conda-meta",	 "own",	     "kernel",
	"modules", "index",   "logs",	    "x",	  "HEAD.lock", "repo",	  "bare",	 "python",   "m",
	"file",	   "pre-commit", "s.json",  "main",	  "ab",	       "COMMIT_EDITMSG",
};
#define COUNT(list) (sizeof(list) / sizeof(*(list)))

static unsigned long long state_of_chance;

static unsigned chance(unsigned n)
{
	state_of_chance = state_of_chance * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state_of_chance >> 33) % n;
}

/* ---- what a cell does ---- */

struct place {
	char path[64];
	struct cb_judge judge;
	unsigned done;
};

static void make_host_files(const char *top)
{
	for (size_t i = 0; i < FILES; i++) {
		char path[256];
		CB_AUTO_FD fd = -1;

		snprintf(path, sizeof(path), "%s/%s", top, host_files[i]);
		for (char *slash = strchr(path + strlen(top) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
			*slash = '/';
		}
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		assert_true(dprintf(fd, "host %zu", i) > 0);
	}
}

/* One of the names in a folder; false if it has none. */
static bool pick_in(const char *folder, char ret_name[256])
{
	DIR *dir = opendir(folder);
	const struct dirent *e;
	unsigned seen = 0;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && chance(++seen) == 0)
			snprintf(ret_name, 256, "%s", e->d_name);
	if (dir != NULL)
		closedir(dir);
	return seen > 0;
}

/* Often something that is there. */
static void pick(const struct place *p, char path[512])
{
	size_t n = 0, depth = 1 + chance(DEPTH);

	path[0] = '\0';
	for (size_t i = 0; i < depth; i++) {
		char full[600], name[256];

		snprintf(full, sizeof(full), "%s/%s", p->path, path);
		if (chance(4) == 0 || !pick_in(full, name))
			snprintf(name, sizeof(name), "%s", names[chance(COUNT(names))]);
		n += (size_t)snprintf(path + n, 512 - n, "%s%s", i > 0 ? "/" : "", name);
	}
}

static void write_file(struct place *p, const char *path, const struct stat *st)
{
	struct cb_judged judged;
	enum cb_act act = st != NULL ? CB_ACT_CHANGE : CB_ACT_MAKE;
	int fd;

	if (cb_judge(&p->judge, path, act, S_IFREG, -1, &judged) < 0)
		return;
	fd = openat(judged.parent, judged.name,
		    O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | (st == NULL ? O_CREAT : 0), 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "cell", 4), 4);
	close(fd);
	close(judged.parent);
	p->done++;
}

static void make_other(struct place *p, const char *path, mode_t type)
{
	struct cb_judged judged;
	int r;

	if (cb_judge(&p->judge, path, CB_ACT_MAKE, type, -1, &judged) < 0)
		return;
	if (S_ISDIR(type))
		r = mkdirat(judged.parent, judged.name, 0755);
	else if (S_ISLNK(type))
		r = symlinkat(chance(2) != 0 ? "../b/link" : "..", judged.parent, judged.name);
	else
		r = mknodat(judged.parent, judged.name, S_IFIFO | 0644, 0);
	assert_int_equal(r, 0);
	close(judged.parent);
	p->done++;
}

static void remove_entry(struct place *p, const char *path, const struct stat *st)
{
	struct cb_judged judged;

	if (cb_judge(&p->judge, path, CB_ACT_REMOVE, st->st_mode & S_IFMT, -1, &judged) < 0)
		return;
	p->done += unlinkat(judged.parent, judged.name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0) == 0;
	close(judged.parent);
}

static void link_entry(struct place *p, const char *from, const char *to, mode_t mode)
{
	struct cb_judged a, b;

	if (cb_judge_link(&p->judge, from, to, mode & S_IFMT, &a, &b) < 0)
		return;
	p->done += linkat(a.parent, a.name, b.parent, b.name, 0) == 0;
	close(a.parent);
	close(b.parent);
}

static int judge_move(const struct place *p, const char *from, const char *to, mode_t mode, struct cb_judged *a,
		      struct cb_judged *b)
{
	CB_AUTO_FD content = -1;
	int r = cb_judge(&p->judge, from, CB_ACT_REMOVE, mode & S_IFMT, -1, a);

	b->parent = -1;
	if (r < 0)
		return r;
	if (S_ISDIR(mode))
		content = openat(a->parent, a->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return cb_judge(&p->judge, to, CB_ACT_MAKE, mode & S_IFMT, content, b);
}

static void move_entry(struct place *p, const char *from, const char *to, const struct stat *st)
{
	struct cb_judged a, b, c, d;
	struct stat other;
	bool swap = chance(4) == 0;
	int r = judge_move(p, from, to, st->st_mode, &a, &b);

	if (r == 0 && swap) {
		r = fstatat(b.parent, b.name, &other, AT_SYMLINK_NOFOLLOW);
		if (r == 0) {
			r = judge_move(p, to, from, other.st_mode, &c, &d);
			cb_fd_close(&c.parent);
			cb_fd_close(&d.parent);
		}
	}
	if (r == 0)
		p->done += renameat2(a.parent, a.name, b.parent, b.name, swap ? RENAME_EXCHANGE : 0) == 0;
	cb_fd_close(&a.parent);
	cb_fd_close(&b.parent);
}

static void step(struct place *p)
{
	char path[512], full[600], to[512];
	struct stat st;
	bool there;

	pick(p, path);
	pick(p, to);
	snprintf(full, sizeof(full), "%s/%s", p->path, path);
	there = lstat(full, &st) == 0;
	if (!there && chance(2) != 0)
		make_other(p, path, S_IFDIR);
	else if (!there && chance(5) == 0)
		make_other(p, path, chance(2) != 0 ? S_IFLNK : S_IFIFO);
	else if (!there)
		write_file(p, path, NULL);
	else if (chance(3) != 0)
		move_entry(p, path, to, &st);
	else if (chance(3) == 0)
		remove_entry(p, path, &st);
	else if ((S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) && chance(2) != 0)
		link_entry(p, path, to, st.st_mode);
	else if (S_ISREG(st.st_mode))
		write_file(p, path, &st);
}

/* ---- what must hold: by other means than the judge's ---- */

struct check {
	bool seen[FILES]; /* a host's file, in a place where it is protected */
};

static bool is_there(const char *folder, const char *name)
{
	char path[1200];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) && lstat(path, &st) == 0;
}

/* Counting in any spelling: as if the folder were copied to where case is folded. */
static bool has_folded(const char *folder, const char *name)
{
	DIR *dir = opendir(folder);
	const struct dirent *e;
	bool found = false;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		found = found || strcasecmp(e->d_name, name) == 0;
	if (dir != NULL)
		closedir(dir);
	return found;
}

static bool is_repository(const char *folder)
{
	return has_folded(folder, "HEAD") &&
	       ((has_folded(folder, "objects") && has_folded(folder, "refs")) || has_folded(folder, "commondir"));
}

/* The number of a host's file, -1 = a cell wrote it. */
static int whose(const char *path)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[32] = "";

	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) >= 0);
	return strncmp(text, "host ", 5) == 0 ? (int)strtol(text + 5, NULL, 10) : -1;
}

struct above {
	bool whole;	 /* below something that is protected whole */
	bool git, first; /* in a git folder, and directly */
	bool tree;	 /* of it, in objects, refs or logs */
	bool objects;	 /* directly in objects */
	bool info;	 /* directly in objects/info */
	bool docs;
};

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(name, list[i]) == 0)
			return true;
	return false;
}

static bool is_git_data(const struct above *up, const char *name)
{
	static const char *const data[] = { "HEAD", "index", "HEAD.lock", "COMMIT_EDITMSG" };

	return up->tree || (up->first && is_one_of(name, data, COUNT(data)));
}

static bool is_protected_name(const struct above *up, const char *name)
{
	static const char *const whole[] = { ".vscode", ".envrc", "pyvenv.cfg", "conda-meta" };

	for (size_t i = 0; i < COUNT(whole); i++)
		if (strcasecmp(name, whole[i]) == 0)
			return true;
	return (up->docs && strcasecmp(name, "conf.py") == 0) || (up->info && strcasecmp(name, "alternates") == 0);
}

static void check_folder(struct check *c, const char *folder, const struct above *up);

static void check_entry(struct check *c, const char *folder, const char *name, const struct above *up)
{
	char path[1200];
	struct stat st;
	bool closed = up->whole || is_protected_name(up, name) || (up->git && !is_git_data(up, name));
	static const char *const trees[] = { "objects", "refs", "logs" };

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(lstat(path, &st), 0);
	if (S_ISDIR(st.st_mode)) {
		struct above next = { .whole = up->whole || is_protected_name(up, name),
				      .git = up->git,
				      .tree = up->tree || (up->first && is_one_of(name, trees, COUNT(trees))),
				      .objects = up->first && strcasecmp(name, "objects") == 0,
				      .info = up->objects && strcasecmp(name, "info") == 0,
				      .docs = strcasecmp(name, "docs") == 0 };

		if (is_repository(path) || strcasecmp(name, ".git") == 0) {
			next.git = next.first = true;
			next.tree = false;
		}
		next.whole = next.whole || is_there(path, "pyvenv.cfg") || is_there(path, "conda-meta");
		if (is_repository(path)) { /* one of the host's: they have a configuration */
			char config[1300];

			snprintf(config, sizeof(config), "%s/config", path);
			if (!is_there(path, "config") || whose(config) < 0)
				fail_msg("a repository was made: %s", path);
		}
		check_folder(c, path, &next);
		return;
	}
	if (S_ISREG(st.st_mode) && whose(path) >= 0 && closed)
		c->seen[whose(path)] = true;
	else if (closed)
		fail_msg("written though protected: %s", path);
	if (strcasecmp(name, ".git") == 0 || strcasecmp(name, "commondir") == 0 ||
	    (up->git && (!S_ISREG(st.st_mode))))
		fail_msg("must not be: %s", path);
	if (closed && st.st_nlink > 1)
		fail_msg("has a second name: %s", path);
}

static void check_folder(struct check *c, const char *folder, const struct above *up)
{
	DIR *dir = opendir(folder);
	const struct dirent *e;

	assert_non_null(dir);
	while ((e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			check_entry(c, folder, e->d_name, up);
	closedir(dir);
}

static bool starts_closed(const char *path)
{
	static const char *const open_parts[] = { "HEAD", "index", "objects/", "refs/", "file", "link/" };

	for (size_t i = 0; i < COUNT(open_parts); i++)
		if (strstr(path, open_parts[i]) != NULL)
			return false;
	return true;
}

static void check_all(const struct place *p)
{
	struct check c = { 0 };
	const struct above nothing = { 0 };
	char own[128];

	if (is_repository(p->path))
		fail_msg("the workspace became a repository");
	check_folder(&c, p->path, &nothing);
	snprintf(own, sizeof(own), "%s/own/kernel/x", p->path);
	assert_int_equal(whose(own), 19);
	for (size_t i = 0; i < FILES; i++)
		if (starts_closed(host_files[i]) && i != 19 && !c.seen[i])
			fail_msg("gone from where it is protected: %s", host_files[i]);
}

static void run(unsigned long long seed)
{
	struct place p = { .path = "/tmp/cb-random-XXXXXX" };

	assert_non_null(mkdtemp(p.path));
	make_host_files(p.path);
	p.judge = (struct cb_judge){ .root = open(p.path, O_PATH | O_DIRECTORY | O_CLOEXEC),
				     .beside = -1,
				     .patterns = &patterns,
				     .paths = &paths };
	state_of_chance = seed;
	check_all(&p);
	for (unsigned i = 0; i < STEPS; i++) {
		step(&p);
		if (i % 25 == 24)
			check_all(&p);
	}
	assert_true(p.done > STEPS / 20);
	close(p.judge.root);
	assert_int_equal(folder_remove(p.path), 0);
}

static void test_random(void **state)
{
	const char *fixed = getenv("CB_SEED");
	unsigned long long seed = fixed != NULL ? strtoull(fixed, NULL, 0) : (unsigned long long)time(NULL) * 1000;

	(void)state;
	for (unsigned i = 0; i < (fixed != NULL ? 1 : RUNS); i++) {
		print_message("CB_SEED=%llu\n", seed + i);
		run(seed + i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
