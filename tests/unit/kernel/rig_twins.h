/* Twins for the rig (rig.h): what pid 1 and the twins of a guest say, played by hand. */
#pragma once

#include "rig.h"

struct rig_twin {
	uint32_t number;
	uint64_t request;      /* of CHECKPOINT */
	uint64_t room;	       /* bytes that it may copy */
	int fd[CB_BIRTH_NFDS]; /* its ends; -1 = closed, or the guest's by now */
};

/* A guest at level full; its first twin has been asked for. */
struct rig *rig_twins_up(enum cb_switch_mode mode);
/* The supervisor asks for one: pid 1 hears of it, its ends lie on the control socket, and CHECKPOINT on the wire. */
struct rig_twin rig_twin_asked(struct rig *r);
/* The same for one that is to be a branch: without a side wire. */
struct rig_twin rig_branch_asked(struct rig *r);
/* A copy of it is asked for. */
struct rig_twin rig_twin_bred(struct rig *r, const struct rig_twin *from);
void rig_twin_registers(struct rig *r, const struct rig_twin *t);
void rig_twin_says(const struct rig_twin *t, uint32_t op, uint32_t number); /* on its control socket */
void rig_twin_answered(struct rig *r, const struct rig_twin *t, const char *content);
void rig_twin_comes(struct rig *r, const struct rig_twin *t, const char *answer); /* all three of it */
struct rig_twin rig_twin(struct rig *r);		 /* asked for, and ready */
void rig_twin_close(struct rig_twin *t);		 /* it has died */
void rig_twins_close(struct rig_twin *t, size_t n);
bool rig_none_coming(struct rig *r); /* none is being made, or known to work yet */
void rig_twins_dear(struct rig *r);  /* no other one is made for what cells do, however long they take */

void rig_init_expect(struct rig *r, enum cb_init_op op, int arg);		   /* pid 1 hears */
void rig_init_silent(struct rig *r);						   /* pid 1 has heard nothing more */
void rig_init_tell(struct rig *r, enum cb_init_op op, int arg);			   /* pid 1 speaks, and is heard */
void rig_twin_woken(struct rig *r, const struct rig_twin *t, enum cb_twin_control_op op); /* it hears that */
/* Pid 1 was told to restore it, has done so, and it has the guest's place: gives what RESUME says. */
struct rig_request rig_twin_wakes(struct rig *r, struct rig_twin *t);
struct rig_request rig_twin_restored(struct rig *r, struct rig_twin *t); /* it was told already */
struct rig_request rig_twin_goes_on(struct rig *r, struct rig_twin *t);	  /* and has said so */
void rig_twin_resumed(struct rig *r, struct rig_request *resume);
/* The same, and it is copied in its turn: gives the copy. All of it, for one that takes over. */
struct rig_twin rig_twin_copied(struct rig *r, struct rig_request resume);
struct rig_twin rig_twin_comes_back(struct rig *r, struct rig_twin *t);
/* It serves and its copy is there, but it is not believed yet. */
struct rig_twin rig_twin_unsure(struct rig *r);
void rig_twin_believed(struct rig *r); /* it was looked at for long enough */
/* A state, a cell, another state, and a cell that ends Python. The cell's msg_id. */
const char *rig_twin_dies(struct rig *r, struct rig_twin *ret_old, struct rig_twin *ret_young);
/* The same, and the younger state takes over, and is copied. */
const char *rig_twin_takes_over(struct rig *r, struct rig_twin *ret_old, struct rig_twin *ret_copy);

#define RIG_MADE "{\"status\":\"ok\",\"left_out\":{}}"
