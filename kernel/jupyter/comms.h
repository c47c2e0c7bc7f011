/* Open comms, as both sides have opened and closed them: comm_info is answered from here, also while the guest is busy.
 */
#pragma once

#include <cellblock/json_write.h>
#include <stdbool.h>

struct cb_jupyter;
struct cb_request;

#define CB_COMMS_MAX 65536
#define CB_COMMS_BYTES_MAX (16u << 20)

/* Of all tables together, with what each entry costs beside its text: the main line's, those of branches, and the
 * copies that twins and checkpoints keep. What the copies may not take is left for tables that grow. */
#define CB_COMMS_ALL_MAX (96u << 20)
#define CB_COMMS_COPIES_MAX (64u << 20)

struct cb_comm {
	struct cb_comm *next; /* in its bucket */
	size_t id_len, target_len;
	char text[]; /* raw JSON strings: id, then target name */
};

struct cb_comms {
	struct cb_comm **bucket;
	size_t count, bytes;
	size_t cost; /* what it holds of CB_COMMS_ALL_MAX */
	bool full;   /* one was not listed, and that was said */
};

/* Raw JSON strings (scanned). CB_E_TOO_BIG when there are too many: the comm works, but is not listed. */
int cb_comms_opened(struct cb_comms *c, struct cb_span id, struct cb_span target);
/* Whether it was listed. */
bool cb_comms_closed(struct cb_comms *c, struct cb_span id);
/* Python is told of a client's message: what it opens is open, what it closes is closed. */
void cb_comms_note(struct cb_comms *c, const struct cb_request *r);
/* "comms":{"id":{"target_name":…},…}. `target` (raw JSON string) filters unless its data is NULL. */
void cb_comms_list(const struct cb_comms *c, struct cb_span target, struct cb_json *j);
/* What all tables hold now. */
size_t cb_comms_all(void);
/* CB_E_TOO_BIG (as many copies are kept as CB_COMMS_COPIES_MAX holds) or -ENOMEM: then the copy is empty. */
int cb_comms_copy(const struct cb_comms *c, struct cb_comms *ret_copy);
bool cb_comms_has(const struct cb_comms *c, struct cb_span id);
/* Who had them is gone: tells clients that every comm is closed but those of `then`, which become the table. */
void cb_comms_reset(struct cb_jupyter *jp, struct cb_comms *c, struct cb_comms *then);
void cb_comms_release(struct cb_comms *c);
