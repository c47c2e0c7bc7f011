/* The kernel: all that the supervisor holds while it serves, for those who handle requests. One per process, put
 * together by kernel.c. Trust domain: supervisor. */
#pragma once

#include "records/audit_events.h"
#include "transactions/branches.h"
#include "shells/debug.h"
#include "shells/execution.h"
#include "shells/failure.h"
#include "python/guest.h"
#include "records/records.h"
#include "shells/idle.h"
#include "shells/shell.h"
#include "jupyter/jupyter.h"
#include "jupyter/status.h"
#include "workspace/jobs.h"
#include "shells/lanes.h"
#include "workspace/overlay_changes.h"
#include "jupyter/loop.h"
#include "transactions/memory.h"
#include "policy/policy.h"
#include "setup/interpreter.h"
#include "transactions/checkpoints.h"
#include "python/broker_queue.h"
#include "transactions/twins.h"
#include "workspace/workspace_watch.h"

#define CB_TAKEN_BACK 64

struct cb_kernel {
	const struct cb_policy *policy;
	const struct cb_interpreter *interpreter;
	struct cb_loop loop;
	struct cb_jupyter jupyter;
	struct cb_guest guest;
	struct cb_shells shells;
	struct cb_records records;
	struct cb_workspace workspace;
	struct cb_transactions transactions;
	struct cb_broker_queue broker_queue;
	struct cb_request *history_waiting; /* history_requests that the thread works on */
	uint64_t history_tag;
	int signal_fd;
	pid_t cache_writer;	    /* our child that compiles the guest; 0 = none, or reaped */
	int parent_fd, parent_slot; /* pidfd of JPY_PARENT_PID; -1 = none */
	struct {
		uint64_t name[CB_TAKEN_BACK]; /* hashes of the last requests that were interrupted before they came */
		unsigned next;
	} taken_back;
	char client[64];	    /* the program that started us; empty = unknown */
	double started;		    /* wall clock */
	int64_t started_ns;	    /* the same, monotonic */
	struct {
		double cpu;
		int64_t at; /* 0 = never */
		unsigned jail;
	} usage_asked; /* by usage_request, the last time */
	/* Ends the kernel: the guest gets a second for its exit handlers, then the loop stops. */
	void (*shutdown)(struct cb_kernel *k, bool restart);
	bool failed; /* the end is no one's wish: exit status 1, so that servers restart the kernel */
	int shutdown_timer;
};
