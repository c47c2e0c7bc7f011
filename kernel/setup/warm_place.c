/* Where this user's zygotes are found: see warm_place.h.
 *
 * Role: kernels and `cellblock warm` look in the same place. Trust domain: supervisor's program, at start. Invariant:
 * XDG_RUNTIME_DIR counts only where it is a folder of our user's, as its specification wants it: root that has kept a
 * user's environment makes nothing there.
 */
#include "warm_place.h"

#include <cellblock/sandbox.h>
#include <limits.h>
#include <sys/stat.h>

#include "policy/paths.h"

#define BELOW "/cellblock/warm"

static char *below_runtime_folder(void)
{
	const char *named = getenv("XDG_RUNTIME_DIR");
	CB_AUTO_PATH clean = named != NULL && named[0] == '/' ? cb_path_absolute(named, NULL) : NULL;
	struct stat st;

	if (clean == NULL || stat(clean, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    strlen(clean) + sizeof(BELOW) > PATH_MAX)
		return NULL;
	return cb_path_format("%s" BELOW, strcmp(clean, "/") == 0 ? "" : clean);
}

char *cb_warm_place(void)
{
	char *path = NULL;

	if (cb_is_host_root())
		return strdup("/run" BELOW);
	path = below_runtime_folder();
	return path != NULL ? path : cb_path_format("/tmp/cellblock-%u/warm", (unsigned)geteuid());
}
