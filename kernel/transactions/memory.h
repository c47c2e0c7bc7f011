/* Memory of the jail: what is given up when it is short, and who ends when it is over. Trust domain: supervisor. See
 * memory.c. */
#pragma once

#include "transactions.h"

int cb_memory_init(struct cb_transactions *tx);
/* A cell of the main shell begins; one of a subshell. */
void cb_memory_cell_begins(struct cb_transactions *tx);
void cb_memory_watch(struct cb_transactions *tx);
/* Bytes that a twin may copy for itself before anybody writes to them: half of what the jail still has, a
 * quarter of what the host has. */
uint64_t cb_memory_room(struct cb_transactions *tx);
/* A twin has taken over: what the dead had is free. */
void cb_memory_freed(struct cb_transactions *tx);
/* The broker has looked, where no control group holds the limit. */
void cb_memory_told(struct cb_transactions *tx, const struct cb_broker_reply *notice);
