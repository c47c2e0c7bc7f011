/* A shell: one line of requests that Python serves one at a time. Trust domain: supervisor. See shell.c. */
#pragma once

#include "shells.h"

const struct cb_shell_message *cb_shell_message_of(const struct cb_request *r); /* NULL = no shell's */
bool cb_shell_is(const struct cb_shell *s, struct cb_span id);			/* a raw JSON string */

/* Waits in the shell (ownership); false if it was answered at once because there are too many. */
bool cb_shell_take(struct cb_shell *s, struct cb_request *r);
bool cb_shell_has_room(const struct cb_shell *s, const struct cb_request *r);
bool cb_shell_take_first(struct cb_shell *s, struct cb_request *r); /* the same, before all that wait */
struct cb_request *cb_shell_pop(struct cb_shell *s);
void cb_shell_release(struct cb_shell *s);

/* Begins it (ownership); if it can't be handed to Python, or the audit log is gone, it ends with that. */
void cb_shell_begin(struct cb_shell *s, struct cb_request *r);
/* The same, but Python is not given it: the caller answers it. */
void cb_shell_begin_here(struct cb_shell *s, struct cb_request *r);
/* EXECUTE's metadata, of the shell's current cell. */
int cb_shell_metadata(const struct cb_shell *s, unsigned lane, struct cb_buf *out);
/* Hands the current request to Python's main thread, as ops.send is to. */
int cb_shell_send(struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m);
/* The current request is answered: idle. */
void cb_shell_finish(struct cb_shell *s);

/* From Python: a frame that is for this shell, and what such do. A negative code (with reason) is a broken rule. */
int cb_shell_frame(struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason);
void cb_shell_error(struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c);
/* The current request's end: a cell's, or that of a comm message. */
void cb_shell_reply(struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c);
/* The answer to a question; CB_E_DENIED if that was none, or another one. */
int cb_shell_answer(struct cb_shell *s, struct cb_frame *f, const char **ret_reason);
/* The current cell asks for input: its clock stands. CB_E_DENIED if it may not. */
int cb_shell_ask(struct cb_shell *s, struct cb_frame *f, const char **ret_reason);
/* The client that this is from; where it names a subshell or branch, in a cell that was sent there. */
bool cb_shell_asks(const struct cb_shell *s, const struct cb_request *reply);
void cb_shell_input(struct cb_shell *s, struct cb_span content);		      /* a client's answer */
void cb_shell_asked(struct cb_shell *s); /* it was answered, or interrupted */
/* Its clock stands while its user is asked or a debugger holds it, or goes on. In its grace a cell gets no more of it.
 */
void cb_shell_wait(struct cb_shell *s, bool waits);
/* What serves it worked during a wait: takes `seconds` off the clock that stands. True: no time is left. */
bool cb_shell_spend(struct cb_shell *s, double seconds);
/* The current cell's Python is dead, and it is not known yet what becomes of the state: no clock runs any more, and
 * nothing is taken for an answer. cb_shell_died is to follow. */
void cb_shell_stopped(struct cb_shell *s);
/* The current request ends with its Python. */
void cb_shell_died(struct cb_shell *s, const struct cb_death *d);

/* The limits of what runs, now; and when to look again: *when becomes sooner, if it is (0 = never). */
void cb_shell_look(struct cb_shell *s, int64_t now);
void cb_shell_due(const struct cb_shell *s, int64_t *look_at, int64_t *when);
/* A limit of time is reached: KeyboardInterrupt first, after timeout.grace the end. */
void cb_shell_over_time(struct cb_shell *s, bool over_cpu, bool wait_over);
/* The next look at what gives no sign of itself; *look_at stays, however often it is asked for, until that was done and
 * it is 0 again. */
void cb_shell_next_look(int64_t *look_at, int64_t *when);
/* Whether what it has at work, or begins next, was sent after this interrupt, which then is not for it; NULL = one that
 * no client has sent. */
bool cb_shell_came_after(struct cb_shell *s, const struct cb_request *interrupt);
/* The user's interrupt; with `hard` a second one ends what does not obey. Where nothing runs, what waits is interrupted
 * as soon as it is begun. */
void cb_shell_interrupt(struct cb_shell *s, bool hard);
/* The user's interrupt of one request, named by its id (a raw JSON string): one that waits is taken out and aborted, a
 * cell that runs is interrupted; what else runs goes on to its end. */
enum cb_found cb_shell_interrupt_one(struct cb_shell *s, struct cb_span msg_id);
/* Python has taken it. */
void cb_shell_obeyed(struct cb_shell *s);
/* A process went over the memory that the current cell's request asked for: it is killed. */
void cb_shell_over_memory(struct cb_shell *s);
/* Notes why what runs is about to be killed, unless a reason stands already. */
void cb_shell_stop_reason(struct cb_shell *s, enum cb_stop stop);
