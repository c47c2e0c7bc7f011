/* Levels of isolation in words.
 *
 * Role: the names that policies use, and what each means to a person. Trust domain: supervisor.
 */
#include "isolation_level.h"

static const struct {
	const char *name, *text;
} levels[] = {
	[CB_LEVEL_NONE] = { "none", "no walls around the cells" },
	[CB_LEVEL_CONTAINER] = { "container", "no namespaces of its own, only Landlock and the system call filter" },
	[CB_LEVEL_NO_CGROUP] = { "no-cgroup", "all walls" },
	[CB_LEVEL_FULL] = { "full", "all walls" },
};

const char *cb_level_name(unsigned level)
{
	return level < CB_COUNT(levels) ? levels[level].name : "unknown";
}

const char *cb_level_text(unsigned level)
{
	return level < CB_COUNT(levels) ? levels[level].text : "";
}
