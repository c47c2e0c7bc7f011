/* Where a walk through a tree stands: see walk_path.h. Trust domain: whoever walks. */
#include "walk_path.h"

#include <string.h>

size_t cb_walk_down(struct cb_walk_path *p, const char *name)
{
	size_t before = p->len, n = strlen(name), slash = before > 0;

	if (p->lost > 0 || before + slash + n >= sizeof(p->text)) {
		p->lost++;
		return before;
	}
	if (slash)
		p->text[before] = '/';
	memcpy(p->text + before + slash, name, n + 1);
	p->len = before + slash + n;
	return before;
}

void cb_walk_up(struct cb_walk_path *p, size_t before)
{
	if (p->lost > 0) {
		p->lost--;
		return;
	}
	p->len = before;
	p->text[before] = '\0';
}
