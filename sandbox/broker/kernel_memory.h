/* Memory that a jail's processes make the kernel hold. Trust domain: broker, outside. See kernel_memory.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CB_KERNEL_PROCESSES 8192

struct cb_kernel_look {
	const pid_t *pid; /* [0] is pid 1; CB_KERNEL_PROCESSES at most */
	size_t count;
	pid_t guest;	     /* as it was started */
	int sockets;	     /* of cb_kernel_sockets (init/init.h); -1 = none */
	bool own_network;    /* all sockets that its network shows are the jail's */
	ino_t registry;	     /* pid 1's socket; for cb_kernel_in_flight */
	uint64_t open_files; /* that a process may have */
	uint64_t *longest;   /* text about a descriptor that any look has seen; for cb_kernel_memory */
	bool (*is_late)(const void *end);
	const void *end;
};

/* Bytes, about and not too few. */
uint64_t cb_kernel_memory(const struct cb_kernel_look *look);
/* Whether many descriptors wait in UNIX sockets of these processes, or may. */
enum cb_kernel_flight {
	CB_FLIGHT_FEW,
	CB_FLIGHT_UNSEEN, /* there is a socket that no descriptor shows, a process that shows none, or pid 1 has not
			   * read what it was sent */
	CB_FLIGHT_MANY,
};
enum cb_kernel_flight cb_kernel_in_flight(const struct cb_kernel_look *look);
