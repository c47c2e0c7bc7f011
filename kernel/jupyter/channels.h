/* The five Jupyter channels: listening, ZeroMQ sockets, receiving and replying. Trust domain: supervisor. */
#pragma once

#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <stdbool.h>
#include <zmq.h>

#include "log_limit.h"
#include "message.h"
#include "setup/connection_file.h"

struct cb_jupyter;

struct cb_channels {
	void *context;
	void *socket[CB_NCHANNELS];
	int listen_fd[CB_NCHANNELS]; /* bound before rights are dropped, then libzmq's */
	int slot[CB_NCHANNELS];	     /* in the loop */
	struct cb_log_limit dropped; /* messages of who has no key */
	struct cb_log_limit unsent;  /* replies that nobody takes */
};

/* Binds and listens, choosing ports that are 0 (conn->port is updated, *ret_chosen set). Before cb_self_sandbox. */
int cb_channels_listen(struct cb_channels *c, struct cb_connection *conn, bool *ret_chosen, struct cb_err *err);
/* Makes the ZeroMQ sockets over the listening fds and enters them into the loop. After cb_self_sandbox. */
int cb_channels_open(struct cb_jupyter *jp, struct cb_err *err);
/* Lets what is queued go out (bounded) and closes all. */
void cb_channels_close(struct cb_jupyter *jp);

/* Takes in what waits on the shell channel now (bounded), so that a failure's abort sees it. */
void cb_channels_drain_shell(struct cb_jupyter *jp);
/* Takes in (and so drops) replies on stdin that came before anything was asked. */
void cb_channels_drain_stdin(struct cb_jupyter *jp);
/* When the loop has stopped: the last requests on control and shell (bounded). */
void cb_channels_drain_at_end(struct cb_jupyter *jp);

/* Sends to the peer that sent `to`, on `channel`, with its header as parent. Never blocks: what is large when clients
 * leave too much unread becomes an error, and beyond twice as much a message is dropped and logged. So it is on stdin
 * to a peer that is gone (-EHOSTUNREACH); elsewhere nobody is told of that. */
int cb_channels_send(struct cb_jupyter *jp, enum cb_channel channel, const struct cb_request *to,
		     const struct cb_outgoing *out);
/* Reply on the request's own channel: `type` is the request's with _reply. metadata NULL = {}. */
void cb_reply(struct cb_jupyter *jp, const struct cb_request *to, struct cb_span content);
void cb_reply_full(struct cb_jupyter *jp, const struct cb_request *to, struct cb_span metadata, struct cb_span content,
		   struct cb_body *body);
/* What `j` has written into a buffer of its own, or a MemoryError if that failed. */
void cb_reply_json(struct cb_jupyter *jp, const struct cb_request *to, struct cb_json *j);
/* {"status":"ok"} and these few members: (key, value) each. */
#define cb_reply_ok(jp, to, ...)                                                                                       \
	do {                                                                                                           \
		CB_JSON_SMALL(ok_, "status", "ok", ##__VA_ARGS__);                                                     \
		cb_reply(jp, to, cb_buf_span(&ok_));                                                                   \
	} while (0)
/* {"status":"error","ename","evalue","traceback":[]} */
void cb_reply_error(struct cb_jupyter *jp, const struct cb_request *to, const char *ename, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Reads the content. False: it is not what the type needs, and the reply has said so. */
bool cb_read_content(struct cb_jupyter *jp, const struct cb_request *r, struct cb_json_field *fields, size_t n);
