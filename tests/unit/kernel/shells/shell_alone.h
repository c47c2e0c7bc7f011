/* One shell alone, with operations, a Python, clients and a clock that the test plays. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "policy/policy.h"
#include "python/python.h"
#include "shells/shell.h"
#include "shells/stdin.h"

#define SECOND 1000000000LL
#define MS 1000000LL
#define REQUESTS 40

/* What was said of each request. */
struct alone_seen {
	unsigned busy, replies, idles, frees, late; /* late: published behind its reply */
	bool comm;				    /* it has no reply */
};

extern struct cb_shells all;
static struct cb_shell *const s = &all.execution.shell;
extern struct cb_loop loop;
extern struct cb_policy policy;
extern struct cb_python python;
extern struct cb_load load;
extern struct cb_shell_ops ops; /* as a subshell's, where the test changes none */
extern int64_t count, now;
extern double cpu; /* what ops.cpu says */
extern bool up, log_gone, deferred;
extern int send_result, ask_result;
extern void (*on_abort)(void); /* what is taken in with a failure; once */
extern struct cb_request request[REQUESTS];
extern struct alone_seen seen[REQUESTS];
extern unsigned made, last_id, arms; /* of these; the last request's id on the wire; calls of ops.arm */
extern char sent_about[1024];	     /* metadata of what was sent last */
extern int64_t replied_count;

int set_up(void **state);
/* What the shell has done since the last time, in order, a word each. */
extern char trace[1024];
void did(const char *what);
void expect(const char *what);

/* A request that nobody knows yet; one that was begun just now. */
struct cb_request *fresh(enum cb_request_kind kind);
struct cb_request *begins(enum cb_request_kind kind, double timeout);
/* What Python says, and its end. */
struct cb_frame *frame_of(uint32_t type, uint64_t id);
void answers(uint64_t id, const char *status, const char *ename);
void fails_with(uint64_t id, const char *ename);
int asks_user(void);
void stopped(void);
void dies(void);
/* An operation for ops.waits. */
void told_of_wait(struct cb_shell *shell, bool waiting);

int64_t due(void); /* 0 = never */
void look_after(int64_t ns, const char *what);
/* The i-th request has had all, once, and is gone. */
void is_over(unsigned i, unsigned replies);
