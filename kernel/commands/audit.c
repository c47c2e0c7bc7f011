/* `cellblock audit FILE`: checks an audit log's chain and prints it.
 *
 * Role: reads a log from its first line to its last; prints each as text that does a terminal no harm. Trust domain:
 * supervisor's program, no secrets; the file may have been changed by anybody. Invariants: at most one line is in
 * memory; nothing is believed of a line but what the chain vouches for. Exit status: 0 the chain holds, 1 it does not
 * (the first bad line is named), or the file can't be read.
 */
#include <cellblock/fd.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>

#include "records/chain.h"
#include "command.h"

#define KERNELS_MAX 4096
#define KERNELS_NAMED 8

struct reader {
	int fd;
	char data[2 * CB_AUDIT_LINE_MAX];
	size_t start, end;
	bool eof;
};

/* The next line without its newline. 1 = a line, 0 = end of file, CB_E_TOO_BIG, CB_E_SYNTAX = the last one has no
 * newline. */
static int next_line(struct reader *r, const char **ret_line, size_t *ret_len)
{
	for (;;) {
		const char *from = r->data + r->start;
		const char *newline = memchr(from, '\n', r->end - r->start);
		ssize_t n;

		if (newline != NULL) {
			*ret_line = from;
			*ret_len = (size_t)(newline - from);
			r->start += *ret_len + 1;
			return *ret_len < CB_AUDIT_LINE_MAX ? 1 : CB_E_TOO_BIG;
		}
		if (r->end - r->start >= CB_AUDIT_LINE_MAX)
			return CB_E_TOO_BIG;
		if (r->eof)
			return r->end > r->start ? CB_E_SYNTAX : 0;
		memmove(r->data, from, r->end - r->start);
		r->end -= r->start;
		r->start = 0;
		n = read(r->fd, r->data + r->end, sizeof(r->data) - r->end);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			r->eof = true;
		if (n > 0)
			r->end += (size_t)n;
	}
}

/* Printable ASCII; everything else as an escape. jansson leaves DEL alone. */
static void put_safely(const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text < ' ' || *text > '~')
			printf("\\x%02x", (unsigned char)*text);
		else
			putchar(*text);
	}
}

static void print_line(const char *line, size_t len)
{
	static const char *const first[] = { "time", "kernel", "event" };
	json_auto_t *root = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
	const char *key;
	json_t *value;

	for (size_t i = 0; i < CB_COUNT(first); i++) {
		put_safely(json_string_value(json_object_get(root, first[i])));
		printf("  ");
		json_object_del(root, first[i]);
	}
	json_object_del(root, "prev");
	json_object_foreach(root, key, value)
	{
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT |
						       JSON_REAL_PRECISION(15));

		put_safely(key);
		putchar('=');
		put_safely(text != NULL ? text : "?");
		putchar(' ');
		free(text);
	}
	putchar('\n');
}

/* Kernels that have begun and not ended. */
static void note_kernel(json_t *open, const char *line, size_t len)
{
	json_auto_t *root = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
	const char *kernel = json_string_value(json_object_get(root, "kernel"));
	const char *event = json_string_value(json_object_get(root, "event"));

	if (strcmp(event, "start") == 0 && json_object_size(open) < KERNELS_MAX)
		json_object_set_new(open, kernel, json_true());
	else if (strcmp(event, "end") == 0)
		json_object_del(open, kernel);
}

/* The youngest by name: it is their end that may have been cut off. */
static void tell_open(json_t *open)
{
	const size_t count = json_object_size(open), older = count > KERNELS_NAMED ? count - KERNELS_NAMED : 0;
	const char *kernel;
	json_t *value;
	size_t i = 0;

	if (count == 0)
		return;
	fprintf(stderr,
		"%zu kernel(s) have a start and no end: they run still, were killed, or lines at the end were taken "
		"out:",
		count);
	json_object_foreach(open, kernel, value)
	{
		if (i++ >= older)
			fprintf(stderr, " %s", cb_shown(kernel));
	}
	if (older > 0)
		fprintf(stderr, " and %zu older ones", older);
	fprintf(stderr, "\n");
}

static int bad(const char *path, unsigned long long line, const char *reason)
{
	fflush(stdout);
	fprintf(stderr, "cellblock audit: ");
	fprintf(stderr, "%s: line %llu: %s\n", cb_shown(path), line, reason);
	return 1;
}

static int verify(const char *path, struct reader *r, json_t *open)
{
	char prev[CB_AUDIT_HASH] = CB_AUDIT_NO_LINE, reason[200];
	unsigned long long count = 0;
	const char *line = "";
	size_t len = 0;
	int c;

	while ((c = next_line(r, &line, &len)) == 1) {
		count++;
		if (cb_audit_check(line, len, prev, reason, sizeof(reason)) < 0)
			return bad(path, count, reason);
		print_line(line, len);
		note_kernel(open, line, len);
		if (cb_audit_hash(line, len, prev) < 0)
			return bad(path, count, "SHA-256 is not available");
	}
	if (c == CB_E_SYNTAX || c == CB_E_TOO_BIG)
		return bad(path, count + 1,
			   c == CB_E_SYNTAX ? "it has no end: it was cut" : "longer than any line of ours");
	if (c < 0)
		return bad(path, count + 1, strerror(-c));
	fflush(stdout);
	fprintf(stderr, "%s: %llu lines, the chain holds; hash of the last line: %s\n", cb_shown(path), count, prev);
	tell_open(open);
	return 0;
}

int cb_command_audit(const struct cb_options *o)
{
	static struct reader r; /* large: not for the stack */
	CB_AUTO_FD fd = open(o->file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	json_t *open_kernels;
	int status;

	if (fd < 0) {
		fprintf(stderr, "cellblock audit: %s: %s\n", cb_shown(o->file), strerror(errno));
		return 1;
	}
	open_kernels = json_object();
	r = (struct reader){ .fd = fd };
	status = open_kernels != NULL ? verify(o->file, &r, open_kernels) : 1;
	json_decref(open_kernels);
	return status;
}
