/* The side of the clients: sockets, signatures, what is published. Trust domain: supervisor. Who serves them is behind
 * the events. */
#pragma once

#include "channels.h"
#include "iopub.h"
#include "tools.h"

struct cb_kernel;
struct cb_loop;
struct cb_policy;

struct cb_jupyter_events {
	void (*request)(struct cb_kernel *k, struct cb_request *r); /* (ownership) its signature is right */
	void (*dropped)(struct cb_kernel *k, const char *channel, const char *why);
	void (*unheard)(struct cb_kernel *k); /* the last that listened is gone */
	/* What is at work, or was announced, so that busy is said of it; NULL = nothing. */
	const struct cb_request *(*at_work)(const struct cb_kernel *k);
	bool (*interrupts)(const struct cb_kernel *k); /* Python is to stop: what it says meanwhile is not held up */
};

struct cb_jupyter {
	const struct cb_jupyter_events *events;
	struct cb_kernel *kernel; /* that they are told to */
	struct cb_loop *loop;
	const struct cb_policy *policy;
	struct cb_connection conn;
	struct cb_auth *auth;
	struct cb_session session;
	struct cb_channels channels;
	struct cb_iopub iopub;
	struct cb_tools tools;
};
