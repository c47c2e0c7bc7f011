/* What a cell asks of its client: input, and calls of host tools. Trust domain: supervisor. See stdin.c. */
#pragma once

#include "shells.h"

#define CB_STDIN_NOBODY 1 /* the client is gone, or reads nothing */
/* Takes what the shell's cell asked on stdin, or calls of host tools, to its client. A negative code: the guest broke
 * the protocol, and ret_reason (static) says how. After CB_STDIN_NOBODY cb_stdin_nobody() is to be called, as soon as
 * the cell is known to wait. */
int cb_stdin_ask(struct cb_shell *s, const struct cb_frame *f, const char **ret_reason);
void cb_stdin_nobody(struct cb_shell *s);
/* Sends a question again that has reached nobody yet, when its time has come (s->unsent.again_at). */
void cb_stdin_look(struct cb_shell *s, int64_t now);
void cb_stdin_forget(struct cb_shell *s); /* there is no such question any more */
/* The answer to the shell that asks: an input_reply. One that is no answer, or over limits.message, ends the question:
 * calls of host tools fail, and input() gets the end of a file. */
void cb_stdin_answer(struct cb_shell *s, const struct cb_request *r);
void cb_stdin_too_large(struct cb_shell *s);
