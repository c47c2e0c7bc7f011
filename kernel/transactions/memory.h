/* Memory of the jail: what is given up when it is short, and who ends when it is over. Trust domain: supervisor. See
 * memory.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cb_broker_reply;
struct cb_kernel;

struct cb_memory_watch {
	int timer;	   /* while cells run: the next look */
	bool armed;
	uint64_t used;	   /* as the last look found it */
	int64_t freed_ms;  /* monotonic: a state was given up, or a twin took over: older looks saw what is gone */
	unsigned given_up; /* states that the present cell has cost */
	bool none_left;	   /* the state before it is one of them */
	char note[256];	   /* given up while no cell ran: the next one says so */
};

int cb_memory_init(struct cb_kernel *k);
/* A cell of the main shell begins; one of a subshell. */
void cb_memory_cell_begins(struct cb_kernel *k);
void cb_memory_watch(struct cb_kernel *k);
/* Bytes that a twin may copy for itself before anybody writes to them: half of what the jail still has, a
 * quarter of what the host has. */
uint64_t cb_memory_room(struct cb_kernel *k);
/* A twin has taken over: what the dead had is free. */
void cb_memory_freed(struct cb_kernel *k);
/* The broker has looked, where no control group holds the limit. */
void cb_memory_told(struct cb_kernel *k, const struct cb_broker_reply *notice);
