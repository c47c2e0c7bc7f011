/* What a guest may say, and when: the permission table over the wire contract. Trust domain: supervisor. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "link.h"

#define CB_SUBSHELLS_MAX 64
/* Subshells, the comm messages beside each's awaiting cell, and those beside the main shell's. */
#define CB_LANES (2 * CB_SUBSHELLS_MAX + 1)

/* A request that another thread of the guest works on, and as what: CB_PHASE_EXECUTING or CB_PHASE_COMM. */
struct cb_guest_pending {
	uint64_t id; /* 0 = none */
	enum cb_wire_phase phase;
};

struct cb_guest_rules {
	enum cb_wire_phase phase;
	uint64_t first_id, last_id; /* ids given out to this guest; last < first = none yet */
	uint64_t current;	    /* id of the pending request, 0 = none */
	struct cb_guest_pending beside[CB_LANES]; /* in subshells, and beside cells that await */
	uint64_t max_message;	    /* policy: limits.message */
};

/* The one way to another phase; `current` is the id of the request that is pending then, 0 = none. */
void cb_guest_rules_go(struct cb_guest_rules *rules, enum cb_wire_phase to, uint64_t current);
/* The pending cell asks its user, or goes on. */
void cb_guest_rules_input(struct cb_guest_rules *rules, bool asks);
/* 0, or CB_E_UNKNOWN (type), CB_E_DENIED (phase, id), CB_E_TOO_BIG. *ret_reason is static text. */
int cb_guest_policy_header(const struct cb_guest_rules *rules, const struct cb_wire_header *h, const char **ret_reason);

/* The same for the side wire: only `answer` (a type; 0 = none) to `request` may come there. */
int cb_side_policy_header(const struct cb_guest_rules *rules, uint32_t answer, uint64_t request,
			  const struct cb_wire_header *h, const char **ret_reason);

/* Fields of a frame's content that the supervisor looks at itself. Raw JSON values; data NULL if absent. */
struct cb_guest_content {
	struct cb_span status, comm_id, target_name, ename, evalue, traceback;
	bool side; /* HELLO: it serves the side wire */
	struct cb_span wire_version, implementation, python_version, missing_paths;
	struct cb_span left_out;
	struct cb_span type, event; /* DEBUG_REPLY, DEBUG_EVENT */
	bool success;		    /* DEBUG_REPLY */
};

/* Strict scan of content and metadata and the keys that the type needs. 0 or a negative code. */
int cb_guest_policy_content(const struct cb_frame *f, struct cb_guest_content *ret_content, const char **ret_reason);
