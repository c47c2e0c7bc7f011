/* Logging: logfmt lines on one fd (stderr unless redirected), bounded in length, control characters escaped.
 *
 * Nothing is written at the default level in normal running. User code and its output are never logged above debug.
 * Keys and signatures are never logged.
 */
#pragma once

enum cb_log_level { CB_LOG_ERROR, CB_LOG_WARNING, CB_LOG_INFO, CB_LOG_DEBUG };

void cb_log_init(const char *program, enum cb_log_level level, int fd);
const char *cb_log_level_name(enum cb_log_level level);
int cb_log_level_parse(const char *name, enum cb_log_level *ret_level); /* error, warning, info, debug */
enum cb_log_level cb_log_level(void);

/* Writes one line `time level program message`. A line is cut at 2048 bytes. Keeps errno. Thread-safe. */
void cb_log(enum cb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
