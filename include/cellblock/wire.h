/* The wire between the supervisor and a guest: the one contract that C and guest share.
 *
 * Transport: one AF_UNIX SOCK_STREAM socketpair; the guest's end is fd CB_GUEST_FD_WIRE. Nothing else travels on it and
 * no fd ever travels on it from guest to supervisor. A second one of the same kind, the side wire (CB_GUEST_FD_SIDE),
 * brings what is served beside the main thread, see "the side wire" below; a guest need not serve it.
 *
 * Frame, all integers little-endian:
 *
 *	offset size
 *	0      4    type           a number of CB_WIRE_MESSAGES
 *	4      4    content_len    bytes of JSON (for STREAM: raw UTF-8 text)
 *	8      4    metadata_len   bytes of JSON, 0 = {}
 *	12     4    buffer_count   at most CB_WIRE_MAX_BUFFERS
 *	16     8    request        id of the request that caused this frame (see below); 0 = none
 *	24     4    buffers_len    bytes of all buffers together
 *	28     4    flags          CB_WIRE_STDOUT or CB_WIRE_STDERR for STREAM, else 0
 *	32          content, metadata, buffer_count × u32 lengths, then the buffers
 *
 * content_len + metadata_len + buffers_len is at most the cap of the type and the policy's limits.message.
 *
 * Request ids are given by the supervisor in its frames, count up from 1 and are never used twice in a jail. Every
 * frame from the guest names the request on whose behalf it speaks: a thread that outlives its cell goes on printing
 * under that cell's id. Ids that were never given out are a violation.
 *
 * The supervisor sends one request at a time: the next only after the answer to the last. INPUT_REPLY goes to a guest
 * that has asked. An interrupt is no frame but SIGINT to the guest's process group; the guest answers it with
 * INTERRUPTED as soon as Python code runs its handler. No request follows before pid 1 has sent what signals were asked
 * of it: what a guest finds pending when it takes a request is not for that request, and is to be dropped. As long as
 * no answer has come the interrupt is repeated by CB_WIRE_NUDGE + n % 2 to the guest's main process alone, n being the
 * number of INTERRUPTED that have come from it: one that crosses the answer is known by that, and is to be ignored.
 *
 * A guest that breaks a rule of this file (unknown type, wrong phase, over a cap, content that the strict JSON scan
 * refuses, an id never given, half a frame that does not go on) is killed and the request reported as WireError. The
 * supervisor adds what it alone says: execution_count, parent headers, ids, dates, status.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CB_WIRE_VERSION 1
#define CB_WIRE_HEADER_SIZE 32
#define CB_WIRE_MAX_BUFFERS 1024
#define CB_WIRE_SMALL (64u << 10)
#define CB_WIRE_TEXT (1u << 20)
#define CB_WIRE_LARGE (1u << 30) /* in practice the policy's limits.message */

/* File descriptors that a guest is born with. Nothing else is open. */
#define CB_GUEST_FD_STDIN 0  /* /dev/null */
#define CB_GUEST_FD_STDOUT 1 /* pipe to the supervisor: what C code and children write */
#define CB_GUEST_FD_STDERR 2 /* pipe to the supervisor */
#define CB_GUEST_FD_WIRE 3
#define CB_GUEST_FD_LOG 4	   /* pipe to the supervisor's log: the guest's words about itself, never user output */
#define CB_GUEST_FD_TWIN_CONTROL 5 /* to the supervisor: commands about twins, see twin.h */
#define CB_GUEST_FD_REGISTRY 6	   /* to pid 1: where twins register, see twin.h */
#define CB_GUEST_FD_SIDE 7	   /* the side wire */

/* With an older one, or none, cells run in plain mode. */
#define CB_GUEST_OLDEST_IPYTHON "7.21"

/* Numbers of signals; real-time ones, which nobody else uses. See above; the last to a guest that is held up in a
 * function which runs before or after each fork, while a twin is to be made: that function is to end. */
#define CB_WIRE_NUDGE 60 /* and 61 */
#define CB_WIRE_LET_GO 62

/* flags of STREAM */
#define CB_WIRE_STDOUT 1u
#define CB_WIRE_STDERR 2u

/* Phases of a guest, as bits: the table below says in which a frame may arrive. */
enum cb_wire_phase {
	CB_PHASE_STARTING = 1 << 0,  /* before HELLO */
	CB_PHASE_IDLE = 1 << 1,	     /* no request pending */
	CB_PHASE_EXECUTING = 1 << 2, /* EXECUTE pending */
	CB_PHASE_ASKING = 1 << 3,    /* COMPLETE, INSPECT or IS_COMPLETE pending */
	CB_PHASE_COMM = 1 << 4,	     /* COMM_* from the client pending */
	CB_PHASE_INPUT = 1 << 5,     /* EXECUTE pending, waiting for INPUT_REPLY */
	CB_PHASE_FORKING = 1 << 6,   /* CHECKPOINT pending */
	CB_PHASE_WAKING = 1 << 7,    /* a twin: RESUME pending */

	CB_PHASE_UP = CB_PHASE_IDLE | CB_PHASE_EXECUTING | CB_PHASE_ASKING | CB_PHASE_COMM | CB_PHASE_INPUT |
		      CB_PHASE_FORKING,
};

/* What a frame's request id must be. */
enum cb_wire_id {
	CB_ID_NONE,    /* 0 */
	CB_ID_ANY,     /* any id given out so far, or 0 */
	CB_ID_CURRENT, /* a pending request, and the phase is that one's: the main thread's, or one beside it */
};

/* From supervisor to guest: X(NAME, number, cap)
 *
 * EXECUTE      content: the client's execute_request content, verbatim (object; code is a string). metadata:
 *              {"execution_count": n, "silent": b, "store_history": b, "allow_stdin": b, "cell_id": "…"|null,
 *              "header": {the client's header}}, for code that wants to name its parent; where there are twins also
 *              "checkpoints": [{"name", "execution_count", "memory_bytes", "created"}], the named ones
 * COMPLETE     content verbatim: {"code", "cursor_pos"}; INSPECT: + {"detail_level", "omit_sections"};
 *              IS_COMPLETE: {"code"}
 * COMM_*       content verbatim, buffers; metadata: {"header": {the client's}, "metadata": {the client's}}
 * INPUT_REPLY  content: {"value": "…"}; metadata: {"question": n}: to which INPUT_REQUEST; 0 = one without a number
 * SHUTDOWN     content: {"restart": b}; the guest runs its atexit handlers and ends
 * LANE_*, DEBUG  on the side wire only, see there
 * CHECKPOINT   content: {"number": n}: a twin is to be made, see twin.h; its fds lie on the control socket already
 * RESUME       first frame to a twin that was woken: {"execution_count": n, "undone": [{"number": n, "code": "…"}],
 *              "branch": b}: the count goes on at n; the sources of cells whose effects are gone, for In
 */
#define CB_WIRE_DOWN_MESSAGES(X)                                                                                       \
	X(EXECUTE, 2, CB_WIRE_LARGE)                                                                                   \
	X(COMPLETE, 4, CB_WIRE_LARGE)                                                                                  \
	X(INSPECT, 6, CB_WIRE_LARGE)                                                                                   \
	X(IS_COMPLETE, 8, CB_WIRE_LARGE)                                                                               \
	X(DOWN_COMM_OPEN, 10, CB_WIRE_LARGE)                                                                           \
	X(DOWN_COMM_MSG, 12, CB_WIRE_LARGE)                                                                            \
	X(DOWN_COMM_CLOSE, 14, CB_WIRE_LARGE)                                                                          \
	X(INPUT_REPLY, 16, CB_WIRE_LARGE)                                                                              \
	X(SHUTDOWN, 18, CB_WIRE_SMALL)                                                                                 \
	X(CHECKPOINT, 20, CB_WIRE_SMALL)                                                                               \
	X(RESUME, 22, CB_WIRE_LARGE)                                                                                   \
	X(LANE_INTERRUPT, 64, CB_WIRE_SMALL)                                                                           \
	X(LANE_CLOSE, 66, CB_WIRE_SMALL)                                                                               \
	X(DEBUG, 68, CB_WIRE_LARGE)

/* From guest to supervisor: X(NAME, number, phases, id rule, cap)
 *
 * HELLO           first frame, once: {"wire_version": 1, "implementation": "ipython"|"plain",
 *                 "implementation_version": "9.1.0", "python_version": "3.11.7",
 *                 "missing_paths": ["search-path entries that do not exist in the jail", …],
 *                 "side": b: the guest serves the side wire}
 * STREAM          content: raw UTF-8 text (no JSON; what is not valid is replaced), flags: which stream
 * DISPLAY_DATA    {"data": {mime: …}, "metadata": {…}, "transient": {…}}; UPDATE_DISPLAY_DATA the same
 * EXECUTE_RESULT  {"data", "metadata"}, perhaps "transient"; execution_count is the supervisor's and forbidden here
 * ERROR           {"ename", "evalue", "traceback": [str]}
 * CLEAR_OUTPUT    {"wait": b}
 * COMM_*          content and metadata as in the Jupyter protocol, buffers
 * EXECUTE_REPLY   {"status": "ok"|"error", "payload": [{…}], "user_expressions": {…}} and on error ename, evalue,
 *                 traceback; metadata: what the cell asked for by %checkpoint and %rollback, which is done when it has
 *                 ended: {"checkpoint": ["name", …], "rollback": "name"|null}, each only if asked
 * COMPLETE_REPLY, INSPECT_REPLY, IS_COMPLETE_REPLY  the reply's content, whole COMM_DONE       {}: the comm
 * message is handled INPUT_REQUEST   {"prompt": str, "password": b}; the answer is INPUT_REPLY, or an interrupt;
 *                 metadata: perhaps {"question": n}, the guest's number of it, by which it knows the answer: one that
 *                 has crossed an interrupt is none to the next question
 * INTERRUPTED     {}: Python ran the SIGINT handler. request: the pending one or 0; or what a subshell's thread has at
 *                 work, which has taken a LANE_INTERRUPT: that is none of those that CB_WIRE_NUDGE counts
 * CHECKPOINT_REPLY {"status": "ok", "duration_s": s, "left_out": {"threads": n, "sockets": n, "children": n,
 *                 "shared_maps": n, "native": n, "native_of": str, "native_back": n, "forked": 1}}: how long the guest
 *                 stood still, and what would not come back (native: threads that Python does not know, and of what;
 *                 native_back: such threads that do come back, in the first copy of a state that was woken; forked: the
 *                 copy is made by os.fork, with what runs at each fork); or {"status": "error", "ename", "evalue"};
 *                 TimeoutError: threads did not stop, and may the next time
 * RESUMED         {"side": b as in HELLO}: the twin serves. request: that of RESUME
 * AWAITING        {}: the cell is a coroutine that the guest's loop runs: until it ends DOWN_COMM_* may come on the
 *                 wire beside it, with "beside": true in the metadata; the answer is COMM_DONE, perhaps after the
 *                 cell's end. For a subshell's cell they come on the side wire
 * DEBUG_*         on the side wire only, see there
 */
#define CB_WIRE_UP_MESSAGES(X)                                                                                         \
	X(HELLO, 1, CB_PHASE_STARTING, CB_ID_NONE, CB_WIRE_TEXT)                                                       \
	X(STREAM, 3, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                                            \
	X(DISPLAY_DATA, 5, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                                      \
	X(UPDATE_DISPLAY_DATA, 7, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                               \
	X(EXECUTE_RESULT, 9, CB_PHASE_EXECUTING | CB_PHASE_INPUT, CB_ID_CURRENT, CB_WIRE_LARGE)                        \
	X(ERROR, 11, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                                            \
	X(CLEAR_OUTPUT, 13, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_SMALL)                                                     \
	X(UP_COMM_OPEN, 15, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                                     \
	X(UP_COMM_MSG, 17, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                                      \
	X(UP_COMM_CLOSE, 19, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_LARGE)                                                    \
	X(EXECUTE_REPLY, 21, CB_PHASE_EXECUTING, CB_ID_CURRENT, CB_WIRE_LARGE)                                         \
	X(COMPLETE_REPLY, 23, CB_PHASE_ASKING, CB_ID_CURRENT, CB_WIRE_LARGE)                                           \
	X(INSPECT_REPLY, 25, CB_PHASE_ASKING, CB_ID_CURRENT, CB_WIRE_LARGE)                                            \
	X(IS_COMPLETE_REPLY, 27, CB_PHASE_ASKING, CB_ID_CURRENT, CB_WIRE_SMALL)                                        \
	X(COMM_DONE, 29, CB_PHASE_COMM, CB_ID_CURRENT, CB_WIRE_SMALL)                                                  \
	X(INPUT_REQUEST, 31, CB_PHASE_EXECUTING, CB_ID_CURRENT, CB_WIRE_LARGE)                                         \
	X(INTERRUPTED, 33, CB_PHASE_UP, CB_ID_ANY, CB_WIRE_SMALL)                                                      \
	X(CHECKPOINT_REPLY, 35, CB_PHASE_FORKING, CB_ID_CURRENT, CB_WIRE_SMALL)                                        \
	X(RESUMED, 37, CB_PHASE_WAKING, CB_ID_CURRENT, CB_WIRE_SMALL)                                                  \
	X(AWAITING, 71, CB_PHASE_EXECUTING | CB_PHASE_INPUT, CB_ID_CURRENT, CB_WIRE_SMALL)                             \
	X(DEBUG_REPLY, 73, 0, CB_ID_NONE, CB_WIRE_LARGE)                                                               \
	X(DEBUG_EVENT, 75, 0, CB_ID_NONE, CB_WIRE_LARGE)

/* The side wire. What it brings is served by threads of the guest beside the main one, in lanes; each lane serves one
 * request at a time. Down, with "lane": n in the metadata's object:
 *
 *	COMPLETE, INSPECT, IS_COMPLETE  lane 0: asked while the main thread runs a cell. The answer goes up on the side
 *					wire, so that it passes a flood of output
 *	EXECUTE, DOWN_COMM_*		lane n: subshell n, which begins with its first request. Outputs, results,
 *					replies, questions and AWAITING go up on the wire with its id, so that
 *					their order is kept
 *	LANE_INTERRUPT			KeyboardInterrupt for that request of the lane's, if it has not ended; where its
 *					code has not begun, as soon as it does. content, metadata: {"lane": n}
 *	INPUT_REPLY			the answer to the INPUT_REQUEST of the lane's cell; metadata: also "question",
 *					as on the wire. None comes after
 *					LANE_INTERRUPT
 *	LANE_CLOSE			the subshell ends when what it runs has ended
 *	DEBUG				to the debugger: the client's debug_request content, verbatim, a request of the
 *					Debug Adapter Protocol; one at a time
 *
 * Up, only these:
 *
 *	COMPLETE_REPLY, INSPECT_REPLY, IS_COMPLETE_REPLY  to lane 0's pending request
 *	DEBUG_REPLY  to the pending DEBUG: {"type": "response", "request_seq": n, "success": b, "command": str}, perhaps
 *		     "message" and "body"
 *	DEBUG_EVENT  at any time after the first DEBUG, request 0: {"type": "event", "event": str}, perhaps "body" */

enum cb_wire_type {
#define CB_X(name, number, cap) CB_WIRE_##name = number,
	CB_WIRE_DOWN_MESSAGES(CB_X)
#undef CB_X
#define CB_X(name, number, phases, id, cap) CB_WIRE_##name = number,
		CB_WIRE_UP_MESSAGES(CB_X)
#undef CB_X
};

struct cb_wire_header {
	uint32_t type;
	uint32_t content_len;
	uint32_t metadata_len;
	uint32_t buffer_count;
	uint64_t request;
	uint32_t buffers_len;
	uint32_t flags;
};

_Static_assert(sizeof(struct cb_wire_header) == CB_WIRE_HEADER_SIZE, "the header is its own wire form");
