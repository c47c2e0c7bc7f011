/* What the user is to hear with the next cell. Trust domain: supervisor. */
#pragma once

struct cb_execution;

/* The next cell says it on stderr, and so does the banner until then. */
void cb_execution_note(struct cb_execution *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
