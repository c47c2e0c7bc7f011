/* A branch becomes the main line. Trust domain: supervisor. See adopt.c. */
#pragma once

#include "branches.h"

/* The execution queue's current request is begun. False: it is answered, and nothing has changed. */
bool cb_adopt_begin(struct cb_kernel *k, struct cb_request *r);
/* The copy is the main line now: the branch ends. */
void cb_adopt_done(struct cb_kernel *k, uint32_t branch);

/* ---- from branches.c ---- */
/* It is being adopted: what it did now would be lost. */
bool cb_adopt_holds(const struct cb_kernel *k, const struct cb_branch *b);
void cb_adopt_answered(struct cb_kernel *k, struct cb_branch *b, const struct cb_guest_content *c);
void cb_adopt_branch_gone(struct cb_kernel *k, uint32_t branch);

/* ---- from twins_make.c ---- */
/* The branch copies itself, with these n channels. */
int cb_adopt_copy(struct cb_kernel *k, struct cb_branch *b, uint32_t number, const int *theirs, size_t n);
/* It has not: what holds it up is to end, if anything does. */
void cb_adopt_failed(struct cb_kernel *k, uint32_t branch);
