/* Subshells for the rig (rig.h): a guest that serves the side wire, played by hand. */
#pragma once

#include "rig.h"

/* A guest at level full that does. */
struct rig *rig_side_up(enum cb_switch_mode mode);
/* What the guest gets on the side wire: its id; the lane is checked. */
uint64_t rig_side_expect(struct rig *r, enum cb_wire_type type, unsigned lane);
void rig_side_frame(struct rig *r, enum cb_wire_type type, uint64_t request, const char *content);
/* Makes one, which what is sent on shell is for from here on. */
void rig_subshell(struct rig *r);
/* The same, and a cell that it has begun; its id on the wire. */
uint64_t rig_subshell_cell(struct rig *r, const char *content, const char **ret_id);
