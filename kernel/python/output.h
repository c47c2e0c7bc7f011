/* What a process of the guest's says, and on whose behalf: the guest's own, and each branch's. Trust domain:
 * supervisor. See output.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jupyter/comms.h"
#include "link.h"
#include "policy.h"
#include "jupyter/message.h"

struct cb_jupyter;
struct cb_policy;
struct cb_records;

#define CB_OUTPUT_LAST 300 /* bytes */

/* A request, and how much was said for it. */
struct cb_guest_parent {
	uint64_t id;
	struct cb_header *header;
	uint64_t output_bytes;
	bool output_cut;
	bool has_result;
};

struct cb_output {
	struct cb_guest_parent *parent; /* by id modulo nparents: requests that are remembered for late output */
	size_t nparents;
	struct cb_jupyter *jupyter;
	struct cb_records *records;
	const struct cb_policy *policy;
	uint64_t background; /* id under which output without one goes: the latest execute request */
	int out[2];	     /* our ends of fds 1 and 2; -1 = none */
	char tail[2][4];     /* bytes of an unfinished UTF-8 sequence there */
	size_t tail_len[2];
	char last[CB_OUTPUT_LAST + 1]; /* of what came there */
	struct cb_comms *comms; /* that it has open */
};

/* parent: room for n requests that are remembered. */
void cb_output_init(struct cb_output *s, struct cb_guest_parent *parent, size_t n, struct cb_comms *comms,
		    struct cb_jupyter *jupyter, struct cb_records *records, const struct cb_policy *policy);
/* The parent of an id; where there is none, or it is forgotten, that of the latest cell. */
struct cb_guest_parent *cb_output_parent(const struct cb_output *s, uint64_t id);
void cb_output_remember(struct cb_output *s, uint64_t id, struct cb_header *header);
void cb_output_forget(struct cb_output *s);

/* Counts output of a request against limits.output. False when it is over: the output is to be dropped. The first time
 * a notice is published on stderr. */
bool cb_output_count(const struct cb_output *s, struct cb_guest_parent *p, size_t len);
/* Reads once what fd 1 (i = 0) or 2 holds. 0 = nothing more now, 1 = more may come, negative = closed. */
int cb_output_read(struct cb_output *s, int i);
/* Reads what fds 1 and 2 hold now, so that it precedes what is published next. */
void cb_output_drain(struct cb_output *s);

/* STREAM, displays, CLEAR_OUTPUT and comm messages; false if the frame is none of these. */
bool cb_output_frame(struct cb_output *s, struct cb_frame *f, const struct cb_guest_content *c);
/* The result of cell `number`. */
void cb_output_result(struct cb_output *s, struct cb_frame *f, int64_t number);
/* An error; `keep`: how a cell ends, which is told also past the limit of output. */
void cb_output_error(struct cb_output *s, struct cb_frame *f, bool keep);

/* The frame's content with `"execution_count":n,` put behind its opening brace, over the headroom in front of it. The
 * content is an object with at least one key (python/policy.c saw to that). */
struct cb_span cb_frame_with_count(struct cb_frame *f, int64_t n);
