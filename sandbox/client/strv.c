/* String vectors of a jail's description: argv, env, lists of paths.
 *
 * Trust domain: supervisor (fills them), broker and pid 1 (read them). Libc only.
 * Invariant: `items` is NULL or NULL-terminated behind `count` entries, so that it can be handed to execve as it is. A
 * call that fails leaves the vector as it was.
 */
#include <cellblock/sandbox.h>

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "spec_codec.h"

static int take(struct cb_strv *v, char *item, size_t max)
{
	char **items;

	if (v->count >= max)
		return CB_E_TOO_BIG;
	items = realloc(v->items, (v->count + 2) * sizeof(*items));
	if (items == NULL)
		return -ENOMEM;
	v->items = items;
	items[v->count++] = item;
	items[v->count] = NULL;
	return 0;
}

static int add(struct cb_strv *v, const char *item, size_t max)
{
	char *copy = strdup(item);
	int r = copy != NULL ? take(v, copy, max) : -ENOMEM;

	if (r < 0)
		free(copy);
	return r;
}

int cb_strv_add(struct cb_strv *v, const char *item)
{
	return add(v, item, CB_STRV_MAX);
}

int cb_strv_add_name(struct cb_strv *v, const char *name)
{
	return add(v, name, CB_NAMES_MAX);
}

int cb_strv_addf(struct cb_strv *v, const char *format, ...)
{
	char *text = NULL;
	va_list args;
	int r;

	va_start(args, format);
	r = vasprintf(&text, format, args);
	va_end(args);
	if (r < 0)
		return -ENOMEM;
	r = take(v, text, CB_STRV_MAX);
	if (r < 0)
		free(text);
	return r;
}

bool cb_strv_has(const struct cb_strv *v, const char *item)
{
	size_t i = 0;

	while (i < v->count && strcmp(v->items[i], item) != 0)
		i++;
	return i < v->count;
}

void cb_strv_release(struct cb_strv *v)
{
	if (v == NULL)
		return;
	for (size_t i = 0; i < v->count; i++)
		free(v->items[i]);
	free(v->items);
	*v = (struct cb_strv){ 0 };
}
