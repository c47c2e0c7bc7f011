/* Log lines: `time=… level=… program=… msg="…"`, one write(2) each.
 *
 * Trust domain: all C programs; texts may carry hostile bytes, so control characters and quotes are escaped and the
 * line's length is bounded. Allocates nothing and takes no lock (one write of at most 2048 bytes), so that every thread
 * may call it.
 */
#include <cellblock/error.h>
#include <cellblock/log.h>
#include <cellblock/visible.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define TAIL "\"\n"
#define CUT "…"

static const char *const level_names[] = {
	[CB_LOG_ERROR] = "error", [CB_LOG_WARNING] = "warning", [CB_LOG_INFO] = "info", [CB_LOG_DEBUG] = "debug"
};

static struct {
	const char *program;
	enum cb_log_level level;
	int fd;
} state = { .program = "cellblock", .level = CB_LOG_WARNING, .fd = STDERR_FILENO };

void cb_log_init(const char *program, enum cb_log_level level, int fd)
{
	state.program = program;
	state.level = level;
	state.fd = fd;
}

const char *cb_log_level_name(enum cb_log_level level)
{
	return level_names[level];
}

int cb_log_level_parse(const char *name, enum cb_log_level *ret_level)
{
	for (size_t i = 0; i < CB_COUNT(level_names); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*ret_level = (enum cb_log_level)i;
			return 0;
		}
	}
	return CB_E_UNKNOWN;
}

enum cb_log_level cb_log_level(void)
{
	return state.level;
}

static size_t put_head(char *line, size_t size, enum cb_log_level level)
{
	struct timespec now = { 0 };
	struct tm utc = { 0 };
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	n = snprintf(line, size, "time=%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ level=%s program=%.32s msg=\"",
		     utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
		     now.tv_nsec / 1000000, level_names[level], state.program);
	return n > 0 ? (size_t)n : 0;
}

/* One character of text, escaped if a terminal or a log reader could take it for more than text. Returns the bytes
 * taken. */
static size_t escape(const char *text, const char *end, char piece[CB_VISIBLE_PIECE])
{
	if (*text != '"' && *text != '\\')
		return cb_visible_character(text, end, piece);
	snprintf(piece, CB_VISIBLE_PIECE, "\\%c", *text);
	return 1;
}

/* Appends text escaped; returns the new length, at most `room`, with a mark where text was cut. */
static size_t put_text(char *line, size_t len, size_t room, const char *text)
{
	const char *p = text, *end = text + strlen(text);

	room -= strlen(CUT);
	while (p < end) {
		char piece[CB_VISIBLE_PIECE];
		size_t n;

		p += escape(p, end, piece);
		n = strlen(piece);
		if (len + n > room) {
			memcpy(line + len, CUT, strlen(CUT));
			return len + strlen(CUT);
		}
		memcpy(line + len, piece, n);
		len += n;
	}
	return len;
}

void cb_log(enum cb_log_level level, const char *format, ...)
{
	int saved = errno;
	char text[LINE_MAX_BYTES], line[LINE_MAX_BYTES];
	va_list args;
	size_t len;
	ssize_t written;

	if (level > state.level || state.fd < 0)
		return;
	va_start(args, format);
	if (vsnprintf(text, sizeof(text), format, args) < 0)
		text[0] = '\0';
	va_end(args);
	len = put_head(line, sizeof(line), level);
	len = put_text(line, len, sizeof(line) - strlen(TAIL), text);
	memcpy(line + len, TAIL, strlen(TAIL));
	written = write(state.fd, line, len + strlen(TAIL));
	(void)written; /* nowhere to report it */
	errno = saved;
}
