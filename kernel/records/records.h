/* What outlives the kernel: its audit log and its history. Trust domain: supervisor. */
#pragma once

#include "audit.h"
#include "history.h"

struct cb_records {
	struct cb_audit *audit;	    /* NULL = none kept */
	bool audit_moved;	    /* its file was renamed, and that was said */
	struct cb_history *history; /* NULL = none kept */
	const int64_t *number;	    /* the kernel's execution count, which lines tell */
};
