/* Build tool: writes the guest's Python constants from wire.h, twin.h and warm.h. usage: wire-constants OUTPUT.py */
#include <cellblock/twin.h>
#include <cellblock/warm.h>
#include <cellblock/wire.h>
#include <stdio.h>

#include "../guest/copier/copier.h"

/* The requests to a zygote, and the array for the copier's enter. */
static void write_warm(FILE *f)
{
	static const char *const late[] = CB_WARM_LATE_ENV;

#define CB_X(name) fprintf(f, #name " = %d\n", CB_##name);
	CB_X(WARM_VERSION)
	CB_X(ZYGOTE_FD_LISTEN)
	CB_X(ZYGOTE_FD_LOCK)
	CB_X(ZYGOTE_FD_UID)
	CB_X(WARM_STAMP_MAX)
	CB_X(WARM_SPAWN)
	CB_X(WARM_END)
	CB_X(WARM_TELL)
	CB_X(WARM_OTHER)
	CB_X(WARM_SERVES)
	CB_X(WARM_FAILED)
	CB_X(WARM_WHY_MAX)
	CB_X(ZYGOTE_LEAVES)
	CB_X(WARM_WIRE)
	CB_X(WARM_PID1)
	CB_X(WARM_NFDS)
	CB_X(WARM_FILTERS)
	CB_X(WARM_STEP_REQUEST)
	CB_X(ENTER_FDS)
	CB_X(ENTER_CONNECTION)
	CB_X(ENTER_UMASK)
	CB_X(ENTER_CWD)
	CB_X(ENTER_TEXTS)
	CB_X(ENTER_FILTERS)
	CB_X(ENTER_STEP)
	CB_X(ENTER_FIELDS)
#undef CB_X
	fprintf(f, "WARM_LATE_ENV = (");
	for (size_t i = 0; i < sizeof late / sizeof *late; i++)
		fprintf(f, "\"%s\", ", late[i]);
	fprintf(f, ")\nWARM_HELLO = \"=2I\"\nWARM_REQUEST = \"=%zuI\"\nWARM_ANSWER = \"=Ii\"\n",
		sizeof(struct cb_warm_request) / 4);
}

int main(int argc, char **argv)
{
	FILE *f = argc == 2 ? fopen(argv[1], "w") : NULL;

	if (f == NULL) {
		fprintf(stderr, "usage: wire-constants OUTPUT.py\n");
		return 2;
	}
	fprintf(f, "\"\"\"Generated from include/cellblock/wire.h; do not edit.\"\"\"\n");
	fprintf(f, "VERSION = %d\nHEADER = \"<IIIIQII\"\nHEADER_SIZE = %d\nMAX_BUFFERS = %d\n", CB_WIRE_VERSION,
		CB_WIRE_HEADER_SIZE, CB_WIRE_MAX_BUFFERS);
	fprintf(f,
		"FD_WIRE = %d\nFD_LOG = %d\nFD_TWIN_CONTROL = %d\nFD_REGISTRY = %d\nFD_SIDE = %d\n"
		"STDOUT = %u\nSTDERR = %u\n",
		CB_GUEST_FD_WIRE, CB_GUEST_FD_LOG, CB_GUEST_FD_TWIN_CONTROL, CB_GUEST_FD_REGISTRY, CB_GUEST_FD_SIDE,
		CB_WIRE_STDOUT, CB_WIRE_STDERR);
	fprintf(f, "OLDEST_IPYTHON = \"%s\"\n", CB_GUEST_OLDEST_IPYTHON);
	fprintf(f, "NUDGE = %d\nLET_GO = %d\n", CB_WIRE_NUDGE, CB_WIRE_LET_GO);
	fprintf(f,
		"TWIN_CONTROL_BIRTH = %d\nTWIN_CONTROL_BREED = %d\nTWIN_CONTROL_WAKE = %d\n"
		"TWIN_CONTROL_BRANCH = %d\nTWIN_CONTROL_BORN = %d\n",
		CB_TWIN_CONTROL_BIRTH, CB_TWIN_CONTROL_BREED, CB_TWIN_CONTROL_WAKE, CB_TWIN_CONTROL_BRANCH,
		CB_TWIN_CONTROL_BORN);
#define CB_X(name) fprintf(f, #name " = %d\n", CB_##name);
	CB_X(COPIER_NUMBER)
	CB_X(COPIER_NFDS)
	CB_X(COPIER_FDS)
	CB_X(COPIER_NPAIRS)
	CB_X(COPIER_PAIRS)
	CB_X(COPIER_PAIRS_MAX)
	CB_X(COPIER_ROOM)
	CB_X(COPIER_ANSWER)
	CB_X(COPIER_ANSWER_MAX)
	CB_X(COPIER_LOOPS)
	CB_X(COPIER_SOCKETS)
	CB_X(COPIER_UNTIDY)
	CB_X(COPIER_SIDE)
	CB_X(COPIER_BRANCH)
	CB_X(COPIER_FIELDS)
#undef CB_X
	write_warm(f);
	fprintf(f, "COPIER_BLANK = b\"%s\"\n", CB_COPIER_BLANK);
#define CB_X(name, number, ...) fprintf(f, "%s = %d\n", #name, number);
	CB_WIRE_DOWN_MESSAGES(CB_X)
	CB_WIRE_UP_MESSAGES(CB_X)
#undef CB_X
	return fclose(f) == 0 ? 0 : 1;
}
