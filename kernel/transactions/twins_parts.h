/* What the files of twins.c have in common. Trust domain: supervisor. See twins.c. */
#pragma once

#include "twins.h"

/* ---- twins.c ---- */
bool cb_twin_is_ready(const struct cb_twin *t);
struct cb_twin *cb_twins_find(struct cb_twins *w, uint32_t number); /* 0 = a free place */
/* The youngest, or with `oldest` the oldest that nothing waits for, of those that are ready and have no name. */
struct cb_twin *cb_twins_pick(struct cb_twins *w, bool oldest);
/* Who takes over when a cell fails for good: the youngest without a name, or if there is none the youngest. */
struct cb_twin *cb_twins_next(struct cb_twins *w);
/* Another one of this one's name. */
struct cb_twin *cb_twins_other_named(struct cb_twins *w, const struct cb_twin *than);
/* Forgets it; that it is dead, or what it is otherwise, is the caller's to know. */
void cb_twins_forget(struct cb_kernel *k, struct cb_twin *t);
/* What lies before the oldest is nobody's any more. */
void cb_twins_forget_past(struct cb_kernel *k);

/* ---- twins_make.c ---- */
/* Ready, if all have come: CHECKPOINT_REPLY, REGISTERED and BORN, and the copy of the files if there is to be one. */
void cb_twins_check_ready(struct cb_kernel *k);
void cb_twins_let_go(struct cb_kernel *k); /* CHECKPOINT is not answered: a function that holds it up is to end */
void cb_twins_not_made(struct cb_kernel *k, const char *why);
/* In words, what a CHECKPOINT_REPLY with an error says. */
void cb_twins_why_not(const struct cb_guest_content *c, char *ret_why, size_t size);
/* If the guest owes an answer all the same, that one ends it. */
void cb_twins_lost_at_birth(struct cb_kernel *k, const char *why);

/* ---- twins_restore.c ---- */
/* The dead are dead: what they have said is all there is. */
void cb_twins_restored(struct cb_kernel *k);
/* The one that takes over has not said RESUMED by its deadline. */
void cb_twins_waking_late(struct cb_kernel *k);
/* Of the one that took over a copy was made, or none could be. */
void cb_twins_copied(struct cb_kernel *k, const struct cb_twin *copy);
/* It has lived on for a while. */
void cb_twins_confirm(struct cb_kernel *k);

/* ---- twins_when.c ---- */
void cb_twins_on_idle(void *context);
