/* The table of open comms.
 *
 * Trust domain: supervisor. Entries come from clients and from the guest, so their number and size are bounded, in one
 * table and in all; a table holds raw JSON strings that the strict scan has passed. Two spellings of one id (escapes)
 * count as two: no client does that, and no harm is done.
 */
#include "comms.h"

#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include "iopub.h"

#define BUCKETS 4096u
#define TABLE (BUCKETS * sizeof(struct cb_comm *))

static size_t all; /* bytes of all tables; those of the loop's thread alone */

static size_t cost(size_t text)
{
	return sizeof(struct cb_comm) + text + 2 * sizeof(size_t);
}

size_t cb_comms_all(void)
{
	return all;
}

static struct cb_comm **bucket_of(const struct cb_comms *c, struct cb_span id)
{
	static uint64_t secret; /* the guest chooses the ids: it must not know which of them share a bucket */

	if (secret == 0) {
		memcpy(&secret, (const void *)getauxval(AT_RANDOM), sizeof(secret));
		secret |= 1;
	}
	return &c->bucket[(cb_span_hash(id, secret) >> 40) % BUCKETS];
}

static struct cb_comm **find(const struct cb_comms *c, struct cb_span id)
{
	struct cb_comm **at = bucket_of(c, id);

	while (*at != NULL && ((*at)->id_len != id.len || memcmp((*at)->text, id.data, id.len) != 0))
		at = &(*at)->next;
	return at;
}

int cb_comms_opened(struct cb_comms *c, struct cb_span id, struct cb_span target)
{
	if (c->bucket == NULL && all + TABLE > CB_COMMS_ALL_MAX)
		return CB_E_TOO_BIG;
	if (c->bucket == NULL && (c->bucket = calloc(BUCKETS, sizeof(*c->bucket))) == NULL)
		return -ENOMEM;
	if (c->cost == 0)
		all += c->cost = TABLE;
	struct cb_comm **at = find(c, id);
	size_t more = cost(id.len + target.len);

	if (*at != NULL)
		return 0;
	if (c->count >= CB_COMMS_MAX || c->bytes + id.len + target.len > CB_COMMS_BYTES_MAX ||
	    all + more > CB_COMMS_ALL_MAX)
		return CB_E_TOO_BIG;
	struct cb_comm *n = malloc(sizeof(*n) + id.len + target.len);

	if (n == NULL)
		return -ENOMEM;
	*n = (struct cb_comm){ .id_len = id.len, .target_len = target.len };
	memcpy(n->text, id.data, id.len);
	memcpy(n->text + id.len, target.data, target.len);
	*at = n;
	all += more;
	c->cost += more;
	c->count++;
	c->bytes += id.len + target.len;
	return 0;
}

bool cb_comms_closed(struct cb_comms *c, struct cb_span id)
{
	if (c->bucket == NULL)
		return false;
	struct cb_comm **at = find(c, id), *gone = *at;

	if (gone == NULL)
		return false;
	*at = gone->next;
	c->count--;
	c->bytes -= gone->id_len + gone->target_len;
	all -= cost(gone->id_len + gone->target_len);
	c->cost -= cost(gone->id_len + gone->target_len);
	free(gone);
	return true;
}

void cb_comms_note(struct cb_comms *c, const struct cb_request *r)
{
	struct cb_json_field f[] = {
		{ .name = "comm_id", .types = CB_JSON_STRING, .required = true },
		{ .name = "target_name", .types = CB_JSON_STRING, .required = r->kind == CB_REQUEST_COMM_OPEN },
	};

	if ((r->kind != CB_REQUEST_COMM_OPEN && r->kind != CB_REQUEST_COMM_CLOSE) ||
	    cb_json_scan_object(r->content.data, r->content.len, f, 2, NULL) < 0)
		return;
	if (r->kind == CB_REQUEST_COMM_OPEN)
		(void)cb_comms_opened(c, f[0].ret, f[1].ret);
	else
		(void)cb_comms_closed(c, f[0].ret);
}

void cb_comms_list(const struct cb_comms *c, struct cb_span target, struct cb_json *j)
{
	cb_json_object(j, "comms");
	for (size_t i = 0; c->bucket != NULL && i < BUCKETS; i++) {
		for (const struct cb_comm *e = c->bucket[i]; e != NULL; e = e->next) {
			struct cb_span name = { e->text + e->id_len, e->target_len };

			if (target.data != NULL &&
			    (target.len != name.len || memcmp(target.data, name.data, name.len) != 0))
				continue;
			cb_json_raw_key(j, (struct cb_span){ e->text, e->id_len });
			cb_json_put_object(j, NULL, "target_name", name);
		}
	}
	cb_json_end(j);
}

int cb_comms_copy(const struct cb_comms *c, struct cb_comms *ret_copy)
{
	int r = c->count > 0 && all + c->cost > CB_COMMS_COPIES_MAX ? CB_E_TOO_BIG : 0;

	for (size_t i = 0; c->bucket != NULL && i < BUCKETS; i++)
		for (const struct cb_comm *e = c->bucket[i]; e != NULL && r == 0; e = e->next)
			r = cb_comms_opened(ret_copy, (struct cb_span){ e->text, e->id_len },
					    (struct cb_span){ e->text + e->id_len, e->target_len });
	if (r < 0)
		cb_comms_release(ret_copy);
	return r;
}

bool cb_comms_has(const struct cb_comms *c, struct cb_span id)
{
	return c->bucket != NULL && *find(c, id) != NULL;
}

void cb_comms_reset(struct cb_jupyter *jp, struct cb_comms *c, struct cb_comms *then)
{
	CB_AUTO_BUF b = CB_BUF_INIT(CB_COMMS_BYTES_MAX);

	for (size_t i = 0; c->bucket != NULL && i < BUCKETS; i++) {
		for (struct cb_comm *e = c->bucket[i]; e != NULL; e = e->next) {
			struct cb_span id = { e->text, e->id_len };

			cb_buf_clear(&b);
			if (!cb_comms_has(then, id) &&
			    cb_json_write_object(&b, "comm_id", id, "data", CB_SPAN("{}")) == 0)
				cb_iopub_content(jp, "comm_close", CB_WEIGHT_DATA, NULL, cb_buf_span(&b));
		}
	}
	cb_comms_release(c);
	*c = *then;
	*then = (struct cb_comms){ 0 };
}

void cb_comms_release(struct cb_comms *c)
{
	for (size_t i = 0; c->bucket != NULL && i < BUCKETS; i++) {
		while (c->bucket[i] != NULL) {
			struct cb_comm *e = c->bucket[i];

			c->bucket[i] = e->next;
			free(e);
		}
	}
	free(c->bucket);
	all -= c->cost;
	*c = (struct cb_comms){ 0 };
}
