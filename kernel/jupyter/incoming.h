/* What peers may make libzmq hold before a message of theirs is whole. Trust domain: supervisor. See incoming.c. */
#pragma once

#include <stdint.h>
#include <zmq.h>

/* From the loop's thread, before libzmq has threads. `max` bytes of one connection, twice that of all. */
void cb_incoming_init(uint64_t max);
/* The last part of a message was taken from a socket. */
void cb_incoming_delivered(zmq_msg_t *last);
