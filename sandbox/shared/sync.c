/* The sync socket of a launch: see sync.h. Trust domain: broker and pid 1. */
#include "sync.h"

#include <cellblock/fd.h>

#include <stdio.h>

int cb_sync_send(int fd, enum cb_sync_kind kind, const struct cb_err *err, const char *note)
{
	struct cb_sync message = { .kind = kind };

	if (err != NULL)
		message.err = *err;
	if (note != NULL)
		snprintf(message.note, sizeof(message.note), "%s", note);
	return cb_fd_send(fd, &message, sizeof(message), NULL, 0);
}

int cb_sync_send_fd(int fd, enum cb_sync_kind kind, uint32_t which, int given)
{
	struct cb_sync message = { .kind = kind, .upper = which };

	return cb_fd_send(fd, &message, sizeof(message), &given, 1);
}
