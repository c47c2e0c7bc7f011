/* Path names: see paths.h.
 *
 * Role: what policy/, setup/ and the commands need. Trust domain: supervisor, at start.
 * Invariant: nothing here opens or changes a file.
 */
#include "paths.h"

#include <cellblock/sandbox.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel follows */

char *cb_path_format(const char *format, ...)
{
	char *text = NULL;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	return n < 0 ? NULL : text;
}

/* Takes out empty, `.` and `..` parts in place. `path` begins with '/'. */
static void clean(char *path)
{
	char *out = path, *in = path;

	while (*in != '\0') {
		size_t n;

		while (*in == '/')
			in++;
		n = strcspn(in, "/");
		if (n == 0)
			break;
		if (n == 2 && in[0] == '.' && in[1] == '.') {
			while (out > path && *--out != '/')
				;
		} else if (n != 1 || in[0] != '.') {
			*out++ = '/';
			memmove(out, in, n);
			out += n;
		}
		in += n;
	}
	if (out == path)
		*out++ = '/';
	*out = '\0';
}

char *cb_path_absolute(const char *path, const char *base)
{
	char *result;

	if (path[0] == '/') {
		result = strdup(path);
	} else if (base != NULL) {
		result = cb_path_format("%s/%s", base, path);
	} else {
		CB_AUTO_PATH cwd = getcwd(NULL, 0);

		result = cwd != NULL && cwd[0] == '/' ? cb_path_format("%s/%s", cwd, path) : NULL;
	}
	if (result != NULL)
		clean(result);
	return result;
}

char *cb_path_real(const char *path)
{
	return realpath(path, NULL);
}

/* A way through the file system: what was followed, and what is left. */
struct way {
	char done[PATH_MAX];
	size_t len;
	char *left; /* malloc'd */
	unsigned links;
};

/* The first part of what is left comes behind what is done. 1: it does, 0: it was "..", or there is none. */
static int step(struct way *w)
{
	size_t from = strspn(w->left, "/"), n = strcspn(w->left + from, "/");
	const char *part = w->left + from;
	int r = 0;

	if (n == 2 && strncmp(part, "..", n) == 0) {
		while (w->len > 0 && w->done[--w->len] != '/')
			;
	} else if (w->len + 1 + n >= sizeof(w->done)) {
		return -ENAMETOOLONG;
	} else if (n > 1 || (n == 1 && part[0] != '.')) {
		w->done[w->len] = '/';
		memcpy(w->done + w->len + 1, part, n);
		w->len += n + 1;
		r = 1;
	}
	w->done[w->len] = '\0';
	memmove(w->left, part + n, strlen(part + n) + 1);
	return r;
}

/* Where what is done is a link, its target takes the place of its last part. */
static int follow(struct way *w)
{
	char target[PATH_MAX];
	ssize_t size = readlink(w->done, target, sizeof(target) - 1);
	char *longer;

	if (size <= 0)
		return 0;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	target[size] = '\0';
	longer = cb_path_format("%s%s", target, w->left);
	if (longer == NULL)
		return -ENOMEM;
	cb_path_free(&w->left);
	w->left = longer;
	w->len = target[0] == '/' ? 0 : (size_t)(strrchr(w->done, '/') - w->done);
	w->done[w->len] = '\0';
	return 0;
}

int cb_path_follow(const char *path, bool (*look)(const char *done, const void *context), const void *context,
		   char **ret_path)
{
	struct way w = { .left = strdup(path) };
	int r = w.left != NULL ? 0 : -ENOMEM;

	while (r == 0 && w.left[0] != '\0') {
		r = step(&w);
		if (r > 0)
			r = look != NULL && look(w.done, context) ? 1 : follow(&w);
	}
	*ret_path = r != -ENOMEM ? cb_path_format("%s%s", w.done, w.len > 0 || w.left[0] != '\0' ? w.left : "/") : NULL;
	cb_path_free(&w.left);
	return r >= 0 && *ret_path == NULL ? -ENOMEM : r;
}

/* True, which ends the way: no memory. */
static bool add_link(const char *done, const void *context)
{
	struct cb_strv *const *links = context;
	struct stat st;

	return lstat(done, &st) == 0 && S_ISLNK(st.st_mode) && cb_strv_add(*links, done) < 0;
}

int cb_path_links(const char *path, struct cb_strv *links, char **ret_path)
{
	int r = cb_path_follow(path, add_link, &links, ret_path);

	return r > 0 ? -ENOMEM : r;
}

char *cb_path_home(void)
{
	const char *home = getenv("HOME");
	const struct passwd *account;

	if (home != NULL && home[0] == '/')
		return cb_path_absolute(home, NULL);
	account = getpwuid(getuid());
	return account != NULL && account->pw_dir[0] == '/' ? cb_path_absolute(account->pw_dir, NULL) : NULL;
}

char *cb_path_expand(const char *path)
{
	CB_AUTO_PATH home = NULL;

	if (path[0] != '~' || (path[1] != '/' && path[1] != '\0'))
		return strdup(path);
	home = cb_path_home();
	return home != NULL ? cb_path_format("%s%s", home, path + 1) : NULL;
}

char *cb_path_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		return strdup(".");
	return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

const char *cb_path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

bool cb_path_next(const char **list, char **part)
{
	size_t n = *list != NULL ? strcspn(*list, ":") : 0;

	cb_path_free(part);
	if (*list == NULL || **list == '\0')
		return false;
	*part = strndup(*list, n);
	*list += n;
	*list += **list == ':';
	return true;
}

bool cb_path_is_program(const char *path)
{
	return cb_path_is_file(path) && access(path, X_OK) == 0;
}

char *cb_path_program_in(const char *folder, const char *name)
{
	char *path = cb_path_format("%s/%s", folder, name);

	if (path != NULL && !cb_path_is_program(path))
		cb_path_free(&path);
	return path;
}

char *cb_path_search(const char *name)
{
	const char *path = getenv("PATH");
	CB_AUTO_PATH folder = NULL;

	if (path == NULL)
		path = "/usr/local/bin:/usr/bin:/bin";
	while (cb_path_next(&path, &folder)) {
		bool absolute = folder != NULL && folder[0] == '/';
		CB_AUTO_PATH candidate = absolute ? cb_path_format("%s/%s", folder, name) : NULL;

		if (candidate != NULL && cb_path_is_program(candidate))
			return cb_path_absolute(candidate, NULL);
	}
	return NULL;
}

bool cb_path_is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool cb_path_is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

void cb_path_free(char **path)
{
	free(*path);
	*path = NULL;
}
