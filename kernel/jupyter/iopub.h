/* The one publisher: status, outputs, stream merging, slow readers. Trust domain: supervisor. See iopub.c. */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>
#include <stdint.h>
#include <zmq.h>

#include "connected.h"
#include "message.h"

struct cb_jupyter;

#define CB_IOPUB_HWM 1000

/* What may be given up when a subscriber does not read, in this order. */
enum cb_weight {
	CB_WEIGHT_TEXT, /* stream */
	CB_WEIGHT_DATA, /* displays, comm messages */
	/* status, and unless they are large execute_input, error, execute_result: what ends or explains a request */
	CB_WEIGHT_KEEP,
};

struct cb_iopub_entry;

struct cb_iopub {
	/* messages that could not be sent yet, oldest first */
	struct cb_iopub_entry *head, *tail;
	size_t bytes;
	size_t dropped;	       /* bytes of text and data given up since the last notice, */
	struct cb_buf dropped_parent; /* and whose the first of it were */
	bool subscribed;       /* somebody has ever subscribed; until then everything is held */
	int64_t blocked_since; /* 0 = not blocked */
	int64_t looked_at;     /* when the queue was last tried */
	size_t in_flight;      /* bytes of bodies at the last look, */
	int64_t full_since;    /* and since when they were too many and became no fewer; 0 = they are not */
	int timer;	       /* retry of the queue */
	struct cb_connected connected;

	/* a notebook server (JPY_SESSION_NAME) drops what comes faster than it allows: when what was sent may have been
	 */
	bool paced;
	int64_t text_clock, message_clock;
	bool busy; /* the last status that was said */

	/* text of one stream of one request, merged until it is flushed */
	struct cb_buf text;
	struct cb_header *text_parent;
	unsigned text_stream; /* CB_WIRE_STDOUT or CB_WIRE_STDERR */
	int text_timer;
};

int cb_iopub_init(struct cb_jupyter *jp);
void cb_iopub_release(struct cb_jupyter *jp);
void cb_iopub_subscriptions(struct cb_jupyter *jp); /* reads (un)subscriptions, answers with iopub_welcome */

/* Publishes after what was published before; pending text goes out first. Never fails towards the caller. */
void cb_iopub_publish(struct cb_jupyter *jp, const char *topic, enum cb_weight weight, const struct cb_outgoing *out);
/* The same for content alone, of which the type is the topic. parent NULL = {}. */
void cb_iopub_content(struct cb_jupyter *jp, const char *type, enum cb_weight weight, const struct cb_header *parent,
		      struct cb_span content);
void cb_iopub_status(struct cb_jupyter *jp, const char *state, struct cb_header *parent); /* parent NULL = {} */
/* Text of a stream: merged with what comes within some ms, flushed before anything else is published. */
void cb_iopub_text(struct cb_jupyter *jp, struct cb_header *parent, unsigned stream, const void *text, size_t len);
void cb_iopub_flush(struct cb_jupyter *jp);
void cb_iopub_end(struct cb_jupyter *jp); /* the kernel ends: all that waits is handed to libzmq, for its linger */
/* Whether the guest's output should not be read for now because subscribers are behind. */
bool cb_iopub_congested(const struct cb_jupyter *jp);
