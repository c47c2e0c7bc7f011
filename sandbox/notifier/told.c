/* What was refused, for whoever started the jail: see calls.h and notifier.h.
 *
 * Trust domain: the notifier notes, on the page that it shares with its parent; the parent reads. Names are a hostile
 * process's, and the page is the notifier's: so they are bounded and cut, and printed as a terminal shows them.
 */
#include "calls.h"

#include <cellblock/visible.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct {
	int error;
	const char *before, *after;
} kinds[CB_REFUSED_KINDS] = {
	[CB_REFUSED_NAME] = { EROFS,
			      "workspace.protect: programs outside would act on these, so they were not written: ",
			      "" },
	[CB_REFUSED_LINK] = { EPERM,
			      "workspace.mode is \"rw\": symbolic links that lead out of the workspace, or up again "
			      "behind a name, were neither made nor moved: ",
			      "; with \"overlay\" or \"tmpfs\" they can be" },
	[CB_REFUSED_FILE] = { EPERM,
			      "workspace.mode is \"rw\": files with hard links that this jail has not made, or with a "
			      "set-uid or set-gid bit, were not written: ",
			      "; copy such a file and rename the copy over it, or use \"overlay\"" },
};

static _Thread_local struct cb_refusal last;
static _Thread_local enum cb_refused last_kind;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void cb_refused_by(enum cb_refused kind, const char *path, const char *about)
{
	last_kind = kind;
	(void)snprintf(last.path, sizeof(last.path), "%s", path);
	(void)snprintf(last.about, sizeof(last.about), "%s", about);
}

void cb_refused_forget(void)
{
	last.path[0] = '\0';
}

void cb_refused_tell(int error)
{
	struct cb_refusal *told = cb_notify_self.shared->refused[last_kind];
	size_t i = 0;

	if (last.path[0] == '\0' || error != kinds[last_kind].error)
		return;
	pthread_mutex_lock(&lock);
	while (i < CB_REFUSALS && told[i].path[0] != '\0' && strcmp(told[i].path, last.path) != 0)
		i++;
	if (i == CB_REFUSALS)
		cb_notify_self.shared->refused_more[last_kind] = true;
	else if (told[i].path[0] == '\0')
		told[i] = last;
	pthread_mutex_unlock(&lock);
}

static void tell_one(struct cb_refusal r, bool first)
{
	r.path[sizeof(r.path) - 1] = r.about[sizeof(r.about) - 1] = '\0';
	(void)fprintf(stderr, "%s%s", first ? "" : ", ", cb_shown(r.path));
	if (r.about[0] != '\0')
		(void)fprintf(stderr, " (\"%s\")", cb_shown(r.about));
}

void cb_notify_tell(const struct cb_notifier *n)
{
	const struct cb_notify_shared *s = n->shared;

	for (size_t kind = 0; s != NULL && kind < CB_REFUSED_KINDS; kind++) {
		if (s->refused[kind][0].path[0] == '\0')
			continue;
		(void)fprintf(stderr, "cellblock run: %s", kinds[kind].before);
		for (size_t i = 0; i < CB_REFUSALS && s->refused[kind][i].path[0] != '\0'; i++)
			tell_one(s->refused[kind][i], i == 0);
		(void)fprintf(stderr, "%s%s\n", s->refused_more[kind] ? " and more" : "", kinds[kind].after);
	}
}
