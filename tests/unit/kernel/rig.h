/* A kernel core without a jail, for tests: real channels on loopback TCP, the real life of a guest, and a broker and a
 * guest that the test plays by hand.
 *
 * Everything runs in one thread: the rig_* calls that wait run the kernel's own loop until what they wait for is there,
 * and fail the test after RIG_PATIENCE. There is no sleep: a test that wants to see that nothing came uses
 * rig_barrier().
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "kernel.h"
#include "requests/rooms.h"

#define RIG_PATIENCE 60000 /* ms */
#define RIG_KEY "0123456789abcdef"

enum rig_source { RIG_SHELL, RIG_CONTROL, RIG_STDIN, RIG_IOPUB, RIG_WIRE, RIG_BROKER, RIG_NSOURCES };

struct rig {
	struct cb_kernel k;
	struct cb_policy policy;
	struct cb_interpreter interpreter;
	struct cb_auth *auth;	/* the client's */
	unsigned serial;	/* of the client's message ids */
	const char *session;	/* of the client's headers */
	const char *date;	/* of the client's headers; NULL = none */
	const char *subshell;	/* likewise */
	void *client[RIG_WIRE]; /* ZeroMQ sockets by rig_source */
	void *peer[4];		/* more of the test's sockets, closed at the end */
	int broker;
	int side, wire, out[2], log, init, twin_control, death; /* the guest's ends; -1 = no guest */
	struct cb_broker_reply end;			 /* the figures that the broker tells of the next death */
	int slot[RIG_NSOURCES];
	int timer;
	bool stopped_here, ended; /* ended: the kernel stopped its loop by itself */
	int64_t worked_ns;	  /* what the guest has had of a processor */
	bool watched;		  /* the kernel has begun to look at the memory, perhaps some time ago */
	uint32_t jail, level;
	unsigned generation; /* the kernel's, at the last SPAWN */
};

/* A message as a client got it. */
struct rig_msg {
	char type[64];
	char parent_id[64]; /* parent_header.msg_id, "" = none */
	json_t *header, *parent, *metadata, *content;
	size_t nbuffers;
	size_t content_len;
};

/* What the guest got. Content and metadata are NUL-terminated. */
struct rig_request {
	struct cb_wire_header h;
	char *content, *metadata, *rest;
};

struct rig *rig_new(void);	   /* no guest, nobody subscribed */
void rig_subscribe(struct rig *r); /* and takes the welcome */
struct rig *rig_up(void);	   /* subscribed, guest ready, start-up messages taken */
int rig_teardown(void **state);	   /* frees what the test put into *state */
void rig_twin_overdue(struct rig *r); /* the kernel has waited for what it awaits of a twin long enough */
void rig_twin_rested(struct rig *r);  /* the guest has put its pages in order behind the newest one */

/* ---- the client ---- */
/* Sends a request; returns its msg_id (valid for the next 4096 sends). NULL metadata or content: {}. */
const char *rig_send(struct rig *r, enum rig_source channel, const char *type, const char *content,
		     const char *metadata);
const char *rig_execute(struct rig *r, const char *code); /* on shell */
struct rig_msg rig_recv(struct rig *r, enum rig_source channel);
void rig_msg_free(struct rig_msg *m);
bool rig_try_recv(struct rig *r, enum rig_source channel, struct rig_msg *ret); /* what is there now */
/* Takes one message and checks type and parent; status messages: `type` is "busy" or "idle". */
struct rig_msg rig_take(struct rig *r, enum rig_source channel, const char *type, const char *parent_id);
void rig_expect(struct rig *r, enum rig_source channel, const char *type, const char *parent_id);
/* An error, on iopub or as a reply, with these words in its evalue. */
void rig_expect_error(struct rig *r, enum rig_source channel, const char *type, const char *parent_id,
		      const char *ename, const char *words);
void rig_expect_aborted(struct rig *r, const char *id); /* a cell that waited */
/* Everything that was under way has been handled, and nothing more came on iopub or shell. */
void rig_barrier(struct rig *r);
const char *rig_text(const struct rig_msg *m, const char *key); /* a string of the content, "" if absent */
json_t *rig_about(const struct rig_msg *m, const char *key);	/* of metadata.cellblock; NULL if absent */

/* ---- the broker and the guest ---- */
void rig_spawn(struct rig *r, int code);		/* answers the SPAWN that waits; code != 0: with that failure */
void rig_guest_up(struct rig *r);			/* rig_spawn and HELLO */
void rig_become(struct rig *r, int fds[CB_BIRTH_NFDS]); /* the guest is another process now, with those */
void rig_swap_wire(struct rig *r, int *fd);		/* what is said and heard on the wire is another process's */
void rig_await_kill(struct rig *r);
void rig_die(struct rig *r, int wait_status); /* reported by pid 1; < 0: unreported. Closes the guest's ends */
struct rig_request rig_guest_recv(struct rig *r);
void rig_request_free(struct rig_request *q);
uint64_t rig_guest_expect(struct rig *r, enum cb_wire_type type); /* returns the request's id */
void rig_frame(struct rig *r, enum cb_wire_type type, uint64_t request, const char *content);
/* A cell is sent and begins: iopub tells of it, and the guest gets it. Its msg_id, and its id on the wire. */
const char *rig_begin(struct rig *r, const char *code, uint64_t *ret_request);
uint64_t rig_begun(struct rig *r, const char *id);	       /* the same of one that was sent */
void rig_end(struct rig *r, const char *id, uint64_t request); /* the guest answers, and all is well */
void rig_cell(struct rig *r, const char *code);		       /* rig_begin, then rig_end */
void rig_cell_says(struct rig *r, const char *words);	       /* the next one begins with this on stderr */
/* How a cell ended: its reply, NULL for `ok`, and its idle; the error it showed. */
void rig_ended(struct rig *r, const char *id, const char *ename);
void rig_cell_error(struct rig *r, const char *id, const char *ename);
void rig_failed(struct rig *r, const char *id, const char *ename); /* the error, then how it ended */
void rig_restarted(struct rig *r); /* a new guest is up, and the kernel idle */
void rig_works(struct rig *r);	   /* one more cell runs */
void rig_stream(struct rig *r, uint64_t request, unsigned stream, const char *text);
void rig_frame_raw(struct rig *r, const struct cb_wire_header *h, const void *body, size_t len);
int rig_interrupts(struct rig *r); /* SIGINTs that pid 1 was asked for since the last call; it answers */
void rig_signalled(struct rig *r); /* the same of the signals that were asked for last */

/* Runs the kernel's loop until `done` says so; until a ms is over. */
void rig_until(struct rig *r, bool (*done)(struct rig *r));
bool rig_is_up(struct rig *r); /* the guest */
void rig_until_soon(struct rig *r);
/* Closes it: what the kernel reads there from now on. */
void rig_figures(int *fd, const char *text);
/* Clients are behind, or not any more: what the guest says is not read. */
void rig_congest(struct rig *r, bool behind);

#define RIG_HELLO "{\"wire_version\":1,\"implementation\":\"plain\",\"python_version\":\"3.11.2\"}"
#define RIG_OK "{\"status\":\"ok\",\"payload\":[],\"user_expressions\":{}}"
#define RIG_ERROR(name)                                                                                                \
	"{\"status\":\"error\",\"ename\":\"" name "\",\"evalue\":\"v\",\"traceback\":[\"t\"],"                         \
	"\"payload\":[],\"user_expressions\":{}}"
#define RIG_ERROR_CONTENT(name) "{\"ename\":\"" name "\",\"evalue\":\"v\",\"traceback\":[\"t\"]}"
