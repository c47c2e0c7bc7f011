/* Growing byte buffer with a ceiling; the contract is in buffer.h.
 *
 * Trust domain: all C programs. Growth doubles, so that a series of appends costs linear time; the last step lands on
 * `max` itself.
 */
#include <cellblock/buffer.h>
#include <cellblock/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_CAP 256

void cb_buf_release(struct cb_buf *b)
{
	if (b == NULL)
		return;
	free(b->data);
	*b = CB_BUF_INIT(b->max);
}

int cb_buf_reserve(struct cb_buf *b, size_t more)
{
	size_t need, cap;
	uint8_t *data;

	if (more <= b->cap - b->len)
		return 0;
	if (more > b->max - b->len)
		return CB_E_TOO_BIG;
	need = b->len + more;
	cap = b->cap > 0 ? b->cap : FIRST_CAP;
	while (cap < need)
		cap = cap > b->max / 2 ? b->max : cap * 2;
	if (cap > b->max)
		cap = b->max;
	data = realloc(b->data, cap);
	if (data == NULL)
		return -ENOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

int cb_buf_append_str(struct cb_buf *b, const char *s)
{
	return cb_buf_append(b, s, strlen(s));
}

/* vsnprintf needs room for a NUL that is not part of the content, which a full buffer does not have: long text goes by
 * the heap. */
int cb_buf_printf(struct cb_buf *b, const char *format, ...)
{
	char small[256], *text = small;
	va_list args;
	int n, r;

	va_start(args, format);
	n = vsnprintf(small, sizeof(small), format, args);
	va_end(args);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n > b->max - b->len)
		return CB_E_TOO_BIG;
	if ((size_t)n >= sizeof(small)) {
		text = malloc((size_t)n + 1);
		if (text == NULL)
			return -ENOMEM;
		va_start(args, format);
		vsnprintf(text, (size_t)n + 1, format, args);
		va_end(args);
	}
	r = cb_buf_append(b, text, (size_t)n);
	if (text != small)
		free(text);
	return r;
}

void cb_buf_consume(struct cb_buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
		return;
	}
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
}
