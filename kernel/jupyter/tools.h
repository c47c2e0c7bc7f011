/* Host tools: functions of clients' that cells may call. Trust domain: supervisor. See tools.c. */
#pragma once

#include <cellblock/json_write.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cb_kernel;
struct cb_request;

#define CB_TOOLS_MAX 1000	  /* of a session */
#define CB_TOOLS_BYTES (1u << 20) /* of their list */
#define CB_TOOL_NAME 65		  /* bytes, with NUL */
#define CB_TOOLS_SESSIONS 64	  /* whose lists are kept: those that were used last */
#define CB_TOOLS_SESSION_ID 512	  /* bytes of the raw JSON string */
#define CB_CALLS_TOGETHER 256	  /* calls in one input_request */
#define CB_CALLS_TOLD 1000	  /* the youngest calls of a cell that its reply tells of */
#define CB_CALLS_DONE 256	  /* the youngest completed calls of cells that may be undone yet */

/* What one session has registered: immutable, shared by the registry and the cells that were sent since. */
struct cb_toolset {
	unsigned refs;
	struct cb_buf session; /* raw JSON string */
	struct cb_buf list;    /* raw JSON array, for the guest */
	char (*name)[CB_TOOL_NAME];
	size_t count;
};

/* A call of a cell whose effects are there, that completed or may have. */
struct cb_called {
	uint64_t id, cell; /* by the count of undo_log.h */
	int64_t number;	   /* the cell's; 0 = none */
	bool in_doubt;
	char tool[CB_TOOL_NAME];
};

/* Those of one line: the main one, or a branch, which may be adopted. */
struct cb_called_list {
	struct cb_called *item; /* the oldest first; room for CB_CALLS_DONE once there is any */
	size_t count;
	uint64_t forgotten; /* one more than the latest cell of those that there was no room for */
};

struct cb_tools {
	struct cb_toolset *set[CB_TOOLS_SESSIONS]; /* the one used last first */
	uint64_t last_call;			   /* ids of calls, counted up as long as the kernel lives */
	struct cb_called_list done;		   /* of the main line */
};

struct cb_call {
	uint64_t id;
	uint32_t tool; /* index in the set */
	bool answered;
	bool completed; /* the client has not said that it never ran, or not to its end */
	bool in_doubt;	/* the client's answer was refused as a whole: it may have completed */
};

/* Of a cell that may call tools; owned by its request. */
struct cb_calls {
	struct cb_toolset *set;
	struct cb_call *call; /* the oldest first; room for CB_CALLS_TOLD + CB_CALLS_TOGETHER once there is any */
	size_t count;
	uint64_t forgotten; /* older ones */
	uint64_t cell;	    /* by the count of undo_log.h */
	struct cb_called_list *line; /* that it runs in; NULL = it has not begun */
	size_t asked;	    /* the last `asked` of them are what the client was asked for, and has not answered */
};

/* Content of a cellblock_tools_request. 0, or a negative code with text in ret_what: key and reason. */
int cb_tools_parse(struct cb_span content, size_t max_bytes, struct cb_toolset **ret_set, char *ret_what, size_t size);
void cb_toolset_unref(struct cb_toolset *t); /* NULL allowed */
/* From now on cells of the session (raw JSON string) have these; takes the reference. An empty set is dropped. */
int cb_tools_register(struct cb_tools *tools, struct cb_span session, struct cb_toolset *set);
/* The set of a session, or NULL; it counts as used. */
struct cb_toolset *cb_tools_find(struct cb_tools *tools, struct cb_span session);
void cb_tools_release(struct cb_tools *tools);

/* What a cell that has just arrived may call: NULL if nothing. */
struct cb_calls *cb_calls_new(struct cb_tools *tools, const struct cb_request *cell);
void cb_calls_free(struct cb_calls *c); /* NULL allowed */

/* A question of the guest's with this metadata. Appends the metadata of its input_request to `out`. 0, or a negative
 * code: the guest broke the protocol, and ret_reason (static) says how. */
int cb_calls_ask(struct cb_tools *tools, struct cb_calls *c, struct cb_span metadata, struct cb_buf *out,
		 const char **ret_reason);
/* The client's answer, a raw JSON string, to what was asked last. Appends what the guest is told to `out`.
 * CB_E_UNKNOWN: an answer to earlier calls, which is noted; the wait goes on. Else: out of memory or too large. */
int cb_calls_answer(struct cb_tools *tools, struct cb_calls *c, struct cb_span value, struct cb_buf *out);
/* The answer to what was asked last is refused as a whole, so whether these calls completed is not known. Appends what
 * the guest is told: "the client's answer WHAT REASON …". */
int cb_calls_refuse(struct cb_calls *c, struct cb_buf *out, const char *what, const char *reason);
/* The question is over. */
void cb_calls_over(struct cb_calls *c);

/* "calls":[…] for the reply's metadata, if there were any. */
void cb_calls_write(const struct cb_calls *c, struct cb_json *j);
/* "; host tools had completed …" behind the text, if there is any: for errors that tell of a state that went back. */
void cb_calls_tell(const struct cb_calls *c, char *text, size_t size);

/* The cell that may call these begins in this line, which outlives it. NULL allowed. */
void cb_calls_begin(struct cb_calls *c, uint64_t cell, struct cb_called_list *line);
/* It has ended and its effects are kept: what it called is told if they are undone later. NULL allowed. */
void cb_calls_keep(const struct cb_calls *c, int64_t number);
/* What was called in a branch was called in the main line, which goes on from it: by `cell`. */
void cb_tools_join(struct cb_tools *tools, const struct cb_called_list *branch, uint64_t cell);
void cb_called_release(struct cb_called_list *l);
/* It was one that others ran beside, and is counted by its end from here on. */
void cb_tools_ended(struct cb_tools *tools, uint64_t cell, uint64_t ended);
/* All after `cell` (-1: all there were) are undone: appends their calls, completed or in doubt ("completed": null), to
 * `out`, [{"id","tool","cell"},…], says the youngest in ret_text ("; what host tools did …", or nothing), and forgets
 * them. */
void cb_tools_undone(struct cb_tools *tools, int64_t cell, struct cb_buf *out, char *ret_text, size_t size);
