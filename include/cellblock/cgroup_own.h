/* Which control groups we are in, from the kernel's tables. See base/cgroup_own.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Paths of the kernel's tables, for tests; "/proc/self/mountinfo" and "/proc/self/cgroup" else. */
struct cb_cgroup_tables {
	const char *mountinfo, *cgroup;
};

bool cb_cg_has_word(const char *text, const char *word, const char *separators);
/* Path of our own group in the hierarchy of `controller` ("" = v2) from the text of /proc/self/cgroup. */
int cb_cg_own_path(const char *table, const char *controller, char *ret_path, size_t size);
/* Mount point of that hierarchy, and which path of it is mounted there, from the text of mountinfo. */
int cb_cg_mount(const char *table, const char *controller, char *ret_point, char *ret_root, size_t size);

/* Our own group in a hierarchy. */
struct cb_cgroup_place {
	int code;	   /* 0; -ENOENT: there is none, or it is not below the mount */
	char point[1024];  /* where the hierarchy is mounted */
	char folder[1024]; /* the group's, below that */
};
/* Those of n controllers, in one look at the tables. */
void cb_cg_own_places(const struct cb_cgroup_tables *t, const char *const *controllers, size_t n,
		      struct cb_cgroup_place *ret);
