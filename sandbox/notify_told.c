/* What was refused, for whoever started the jail: see notify_calls.h and notify.h.
 *
 * Trust domain: the notifier notes, on the page that it shares with its parent; the parent reads. Names are a hostile
 * process's, and the page is the notifier's: so they are bounded and cut, and nothing but plain characters is printed.
 *
 * Callers: notify.c, notify_files.c, notify_sockets.c; run.c.
 */
#include "notify_calls.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct cb_refusal last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void cb_refused_by(const char *path, const char *pattern)
{
	(void)snprintf(last.path, sizeof(last.path), "%s", path);
	(void)snprintf(last.pattern, sizeof(last.pattern), "%s", pattern);
}

void cb_refused_forget(void)
{
	last.path[0] = '\0';
}

void cb_refused_tell(void)
{
	struct cb_notify_shared *s = cb_notify_self.shared;
	bool known = last.path[0] == '\0';

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < CB_REFUSALS && s->refused[i].path[0] != '\0'; i++)
		known = known || strcmp(s->refused[i].path, last.path) == 0;
	for (size_t i = 0; i < CB_REFUSALS && !known; i++) {
		if (s->refused[i].path[0] != '\0')
			continue;
		s->refused[i] = last;
		known = true;
	}
	if (!known)
		s->refused_more = true;
	pthread_mutex_unlock(&lock);
}

static void put_plain(const char *text, size_t max)
{
	for (size_t i = 0; i < max && text[i] != '\0'; i++)
		(void)fputc(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?', stderr);
}

void cb_notify_tell(const struct cb_notifier *n)
{
	const struct cb_notify_shared *s = n->shared;

	if (s == NULL || s->refused[0].path[0] == '\0')
		return;
	(void)fputs("cellblock: workspace.protect: programs outside would act on these, so they were not written: ",
		    stderr);
	for (size_t i = 0; i < CB_REFUSALS && s->refused[i].path[0] != '\0'; i++) {
		(void)fputs(i > 0 ? ", " : "", stderr);
		put_plain(s->refused[i].path, sizeof(s->refused[i].path));
		(void)fputs(" (\"", stderr);
		put_plain(s->refused[i].pattern, sizeof(s->refused[i].pattern));
		(void)fputs("\")", stderr);
	}
	(void)fputs(s->refused_more ? " and more\n" : "\n", stderr);
}
