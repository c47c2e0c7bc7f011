/* How many are connected to iopub. Trust domain: supervisor. See connected.c. */
#pragma once

struct cb_jupyter;

struct cb_connected {
	void *monitor; /* where libzmq tells of them */
	int slot;      /* in the loop */
	unsigned n;
};

/* Before the socket is bound. 0, or a negative code. */
int cb_connected_open(struct cb_jupyter *jp);
/* Before the socket is closed. */
void cb_connected_close(struct cb_jupyter *jp);
