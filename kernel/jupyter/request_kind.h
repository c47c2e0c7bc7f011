/* What a client's message asks for. Trust domain: supervisor.
 *
 * One list of all types that the router knows; the text is looked up once, when a message is parsed. Adding one: a line
 * here, a row in router.c, a handler in requests/.
 */
#pragma once

#include <stdbool.h>

#define CB_REQUEST_KINDS(X)                                                                                            \
	X(EXECUTE, "execute_request")                                                                                  \
	X(COMPLETE, "complete_request")                                                                                \
	X(INSPECT, "inspect_request")                                                                                  \
	X(IS_COMPLETE, "is_complete_request")                                                                          \
	X(COMM_OPEN, "comm_open")                                                                                      \
	X(COMM_MSG, "comm_msg")                                                                                        \
	X(COMM_CLOSE, "comm_close")                                                                                    \
	X(HISTORY, "history_request")                                                                                  \
	X(FILE, "cellblock_file_request")                                                                              \
	X(RUN, "cellblock_run_request")                                                                                \
	X(JAIL_USAGE, "cellblock_usage_request")                                                                       \
	X(CHECKPOINT, "cellblock_checkpoint_request")                                                                  \
	X(ROLLBACK, "cellblock_rollback_request")                                                                      \
	X(LIST_CHECKPOINTS, "cellblock_list_checkpoints_request")                                                      \
	X(DELETE_CHECKPOINT, "cellblock_delete_checkpoint_request")                                                    \
	X(BRANCH, "cellblock_branch_request")                                                                          \
	X(LIST_BRANCHES, "cellblock_list_branches_request")                                                            \
	X(ADOPT, "cellblock_adopt_request")                                                                            \
	X(TOOLS, "cellblock_tools_request")                                                                            \
	X(DEBUG, "debug_request")                                                                                      \
	X(KERNEL_INFO, "kernel_info_request")                                                                          \
	X(COMM_INFO, "comm_info_request")                                                                              \
	X(CONNECT, "connect_request")                                                                                  \
	X(USAGE, "usage_request")                                                                                      \
	X(INTERRUPT, "interrupt_request")                                                                              \
	X(SHUTDOWN, "shutdown_request")                                                                                \
	X(CREATE_SUBSHELL, "create_subshell_request")                                                                  \
	X(DELETE_SUBSHELL, "delete_subshell_request")                                                                  \
	X(LIST_SUBSHELL, "list_subshell_request")                                                                      \
	X(INPUT_REPLY, "input_reply")

enum cb_request_kind {
	CB_REQUEST_OTHER, /* not known, or made by the supervisor */
#define CB_X(name, text) CB_REQUEST_##name,
	CB_REQUEST_KINDS(CB_X)
#undef CB_X
};

enum cb_request_kind cb_request_kind_of(const char *type);
