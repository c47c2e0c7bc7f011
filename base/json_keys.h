/* The keys of all JSON objects that are open during a scan. Internal to base/; one static table, one scan at a time.
 *
 * Use: take a mark when an object opens, add each key, drop to the mark when the object closes; drop to 0 after each
 * scan.
 */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>

unsigned cb_json_keys_mark(void);
/* `inside`: the key without quotes, `escaped`: whether it holds a backslash. -EEXIST if the object open at `depth` has
 * an equal key (compared decoded), CB_E_TOO_BIG past CB_JSON_MAX_LIVE_KEYS. */
int cb_json_keys_add(struct cb_span inside, bool escaped, unsigned depth);
void cb_json_keys_drop(unsigned mark);
