/* Which control groups we are in: the text of the kernel's tables about them.
 *
 * Trust domain: any of ours, outside of jails. What is odd or too long in a table is passed over.
 */
#include <cellblock/cgroup_own.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAX (1u << 20)

bool cb_cg_has_word(const char *text, const char *word, const char *separators)
{
	size_t len = strlen(word);

	while (*text != '\0') {
		size_t n = strcspn(text, separators);

		if (n == len && strncmp(text, word, len) == 0)
			return true;
		text += n;
		text += strspn(text, separators);
	}
	return false;
}

static int copy(char *to, size_t size, const char *from, size_t len)
{
	if (len >= size)
		return -ENAMETOOLONG;
	memcpy(to, from, len);
	to[len] = '\0';
	return 0;
}

/* A line is "NUMBER:CONTROLLERS:PATH"; v2's has no controllers. */
int cb_cg_own_path(const char *table, const char *controller, char *ret_path, size_t size)
{
	for (const char *line = table; *line != '\0';) {
		size_t len = strcspn(line, "\n");
		const char *list = memchr(line, ':', len);
		const char *path = list != NULL ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;

		if (path != NULL) {
			char names[256];

			if (copy(names, sizeof(names), list + 1, (size_t)(path - list - 1)) == 0 &&
			    (controller[0] == '\0' ? names[0] == '\0' : cb_cg_has_word(names, controller, ",")))
				return copy(ret_path, size, path + 1, len - (size_t)(path + 1 - line));
		}
		line += len + (line[len] == '\n');
	}
	return -ENOENT;
}

/* mountinfo writes space, tab, newline and backslash as octal escapes. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from != '\0'; to++) {
		if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
			*to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* A line: id, parent, device, root, mount point, options, optional fields, "-", type, source, options of the
 * superblock. */
static bool mount_line(char *line, const char *controller, char **ret_root, char **ret_point)
{
	char *field[11] = { 0 }, *save = NULL;
	int n = 0, dash = 0;

	for (char *word = strtok_r(line, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
		if (dash == 0 && strcmp(word, "-") == 0) {
			dash = n = 6;
			continue;
		}
		if (dash != 0 ? n < 9 : n < 6)
			field[n++] = word;
	}
	if (dash == 0 || field[8] == NULL)
		return false;
	if (controller[0] == '\0' ? strcmp(field[6], "cgroup2") != 0
				  : strcmp(field[6], "cgroup") != 0 || !cb_cg_has_word(field[8], controller, ","))
		return false;
	*ret_root = field[3];
	*ret_point = field[4];
	return true;
}

int cb_cg_mount(const char *table, const char *controller, char *ret_point, char *ret_root, size_t size)
{
	char line[4096], *root = NULL, *point = NULL;

	while (*table != '\0') {
		size_t len = strcspn(table, "\n");

		if (copy(line, sizeof(line), table, len) == 0 && mount_line(line, controller, &root, &point)) {
			unescape(root);
			unescape(point);
			if (strlen(root) >= size || strlen(point) >= size)
				return -ENAMETOOLONG;
			memcpy(ret_root, root, strlen(root) + 1);
			memcpy(ret_point, point, strlen(point) + 1);
			return 0;
		}
		table += len + (table[len] == '\n');
	}
	return -ENOENT;
}

static int read_table(const char *path, char **ret_text)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len;

	return fd < 0 ? -errno : cb_fd_read_all(fd, TABLE_MAX, ret_text, &len);
}

static int find(const char *mounts, const char *groups, const char *controller, struct cb_cgroup_place *ret)
{
	char root[sizeof(ret->point)], path[sizeof(ret->folder)], *below = path;
	size_t len;
	int r = cb_cg_mount(mounts, controller, ret->point, root, sizeof(root));

	if (r == 0)
		r = cb_cg_own_path(groups, controller, path, sizeof(path));
	if (r < 0)
		return r;
	len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0'))
		return -ENOENT; /* our group lies outside of what is mounted here */
	below = strcmp(path + len, "/") == 0 ? path + strlen(path) : path + len;
	if (strstr(below, "/..") != NULL)
		return -ENOENT; /* outside of our cgroup namespace */
	len = (size_t)snprintf(ret->folder, sizeof(ret->folder), "%s%s", ret->point, below);
	return len < sizeof(ret->folder) ? 0 : -ENAMETOOLONG;
}

void cb_cg_own_places(const struct cb_cgroup_tables *t, const char *const *controllers, size_t n,
		      struct cb_cgroup_place *ret)
{
	char *mounts = NULL, *groups = NULL;
	int r = read_table(t->mountinfo, &mounts);

	if (r == 0)
		r = read_table(t->cgroup, &groups);
	for (size_t i = 0; i < n; i++)
		ret[i].code = r == 0 ? find(mounts, groups, controllers[i], &ret[i]) : r;
	free(mounts);
	free(groups);
}
