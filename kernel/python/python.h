/* A Python of the jail: the guest, or a branch. What it says and is told by its wire, and its interrupts. Trust domain:
 * supervisor. See python.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ends.h"
#include "jupyter/message.h"
#include "link.h"
#include "output.h"
#include "policy.h"
#include "stalled_frame.h"

struct cb_pid1;
struct cb_python;

/* What differs between the guest and a branch. */
struct cb_python_ops {
	bool (*heard)(const struct cb_python *p); /* false: it is condemned, and what it still says is not wanted */
	/* A frame that it may send is dropped all the same. NULL: none is. */
	bool (*drops)(struct cb_python *p, const struct cb_frame *f, const struct cb_guest_content *c);
	/* What is no output; it has passed policy.c. A negative code (with reason) is a broken rule. */
	int (*frame)(struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c,
		     const char **ret_reason);
	void (*watch)(struct cb_python *p); /* what its wire waits for may have changed */
	void (*unwatch)(struct cb_python *p);
	/* Its wire, at the other end: nothing can be told it, or nothing more will be heard. */
	void (*closed)(struct cb_python *p);
	void (*broke)(struct cb_python *p, const char *why);
	void (*arm)(struct cb_python *p); /* what it is due for has changed */
	/* Processors' time of the whole jail, in seconds; negative: it is stopped, or ends. */
	double (*worked)(const struct cb_python *p);
};

struct cb_python {
	const struct cb_python_ops *ops;
	struct cb_pid1 *pid1; /* of its jail */
	uint64_t *last_id; /* of requests, given out to any Python */
	uint32_t number;   /* pid 1's: that of the twin which became a branch; 0 = the guest */
	pid_t pid;	   /* as the kernel says */
	struct cb_guest_link link;
	struct cb_guest_rules rules;
	struct cb_output output;
	struct cb_stalled_frame half;
	int twin_control;     /* twins are born by it; -1 = none */
	int64_t nudge_at;     /* an interrupt is wanted that it has not taken: when it is repeated; 0 = none is */
	int64_t nudge_after;  /* ns until then */
	bool repeated;	      /* it came too early, and was sent again at once */
	unsigned interrupted; /* INTERRUPTED frames that have come, see CB_WIRE_NUDGE */
	unsigned signals;     /* that pid 1 was asked for, and has not yet sent */
	unsigned ending_looks;
};

/* cb_output_init comes after it. */
void cb_python_init(struct cb_python *p, const struct cb_python_ops *ops, struct cb_pid1 *pid1, uint64_t *last_id);
/* Takes wire, output and control socket, but no side wire. 0 or -ENOMEM: then nothing is taken. */
int cb_python_open(struct cb_python *p, struct cb_guest_ends *ends, uint64_t max_message);
void cb_python_close(struct cb_python *p);

/* ---- what it says ---- */
/* Its wire takes more of what it is told. */
void cb_python_flush(struct cb_python *p);
/* Reads frames, `budget` bytes of them, and acts on each. */
void cb_python_read(struct cb_python *p, size_t budget);

/* Its wire is closed, and it is on its way to its end: what that was is told by pid 1, once it has come. False also
 * when this was asked very often. */
bool cb_python_is_ending(struct cb_python *p);

/* How it, or another process of the guest's, ended, by its wait status. */
void cb_python_end_text(int status, char *ret_text, size_t size);

/* ---- what it is told; 0 also if it is dead, for that is reported otherwise ---- */
/* An id for a request, whose parent is remembered. `cell`: what has no id is its output from now on. */
uint64_t cb_python_give_id(struct cb_python *p, struct cb_header *header, bool cell);
/* Sends a request: gives it an id and makes it the pending one. `about`: its metadata on the wire. */
int cb_python_send(struct cb_python *p, struct cb_request *r, enum cb_wire_type type, enum cb_wire_phase phase,
		   struct cb_span about);
/* Sends one that has an id, and is served beside the pending one. */
int cb_python_send_beside(struct cb_python *p, const struct cb_request *r, enum cb_wire_type type,
			  struct cb_span about);
/* A request of our own, likewise. */
int cb_python_ask(struct cb_python *p, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_header *header,
		  struct cb_span content);
/* The answer to the pending cell's question of that number. */
int cb_python_input(struct cb_python *p, int64_t question, struct cb_span content);
/* The request's buffers, if such a message takes any; their number. */
size_t cb_python_buffers(const struct cb_request *r, enum cb_wire_type type, struct cb_span buffer[CB_MAX_BUFFERS]);

/* ---- interrupts ---- */
/* SIGINT to its process group, then again and again to its main process until it has taken one: a signal that arrives
 * just before Python enters a blocking call is only seen when the call ends. */
void cb_python_interrupt(struct cb_python *p);
void cb_python_interrupt_no_more(struct cb_python *p);
/* It says that it took one, with `request` at hand (0 = none). True if that is what runs. */
bool cb_python_interrupted(struct cb_python *p, const struct cb_request *runs, uint64_t request);
/* The function that holds up the making of a twin is to end, see CB_WIRE_LET_GO. */
void cb_python_let_go(struct cb_python *p);
/* Pid 1 has sent a signal. Until it has sent all it was asked for no request is sent that they could hit. */
void cb_python_signalled(struct cb_python *p);

/* ---- time ---- */
/* When it is to be looked at: *when becomes sooner, if it is (0 = never). And that look. */
void cb_python_due(struct cb_python *p, int64_t *when);
void cb_python_look(struct cb_python *p, int64_t now);
