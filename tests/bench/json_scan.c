/* Speed of the JSON scan, in MB/s: build target bench_json_scan, run by hand with a release build.
 *
 * Each shape is about 8 MB; the last three are what an attacker would send.
 */
#include <cellblock/json_scan.h>

#include <stdio.h>
#include <time.h>

#define SIZE (8u << 20)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Repeats `unit` between head and tail; "%u" in it becomes a counter. */
static void shape(const char *name, const char *head, const char *unit, const char *tail)
{
	CB_AUTO_BUF b = CB_BUF_INIT(SIZE + 4096);
	struct cb_json_error error = { 0 };
	enum cb_json_type type;
	const char *mark = strstr(unit, "%u");
	double start, took;
	int r, rounds = 10;

	cb_buf_append_str(&b, head);
	for (unsigned i = 0; b.len < SIZE; i++) {
		if (mark != NULL)
			cb_buf_printf(&b, "%s%.*s%u%s", i > 0 ? "," : "", (int)(mark - unit), unit, i, mark + 2);
		else
			cb_buf_append_str(&b, unit);
	}
	cb_buf_append_str(&b, tail);
	start = now();
	for (int i = 0; i < rounds; i++)
		r = cb_json_scan(b.data, b.len, &type, &error);
	took = (now() - start) / rounds;
	printf("%-28s %8.0f MB/s  %s\n", name, (double)(r == 0 ? b.len : error.offset) / took / 1e6,
	       r == 0 ? "" : error.reason);
}

int main(void)
{
	shape("base64 string", "\"", "iVBORw0KGgoAAAANSUhEUgAABLAAAASwCAYAAADrIbPPAAAA", "\"");
	shape("string with escapes", "\"", "a line of text, not too long\\n", "\"");
	shape("string of two-byte letters", "\"", "Приветмир", "\"");
	shape("string of three-byte letters", "\"", "日本語テキスト", "\"");
	shape("array of reals", "[", "0.%u1234567", "]");
	shape("array of small integers", "[", "%u", "]");
	shape("records", "[", "{\"index\":%u,\"name\":\"Anna\",\"ok\":true,\"value\":3.25}", "]");
	shape("array of short objects", "[", "{\"a\":%u}", "]");
	shape("object of many keys", "{", "\"key%u\":null", "}");
	shape("escaped keys", "[", "{\"\\u0061\\u0062\\u0063\":%u}", "]");
	shape("only \\u escapes", "\"", "\\u00e9", "\"");
	return 0;
}
