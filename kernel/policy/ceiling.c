/* The administrator's ceiling: bounds what any policy may ask for.
 *
 * Role: cb_policy_key_bound for one key. Trust domain: supervisor, at start.
 * Invariant: bounding never widens a value; a ceiling that can't be obeyed is an error, so nothing starts without it.
 */
#include "keys.h"

#include <errno.h>

#include <cellblock/log.h>

#define AT(p, key, type) ((type *)(void *)((char *)(p) + (key)->offset))

/* Numbers: sets the ceiling's value in a copy and takes it over if it is less. */
static int bound_number(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
			struct cb_err *err)
{
	struct cb_policy bound = { 0 };
	double a, b;
	int r = cb_policy_key_set(&bound, key, value, origin, err);

	if (r < 0)
		return r;
	json_auto_t *have = cb_policy_key_get(p, key);
	json_auto_t *most = cb_policy_key_get(&bound, key);

	if (have == NULL || most == NULL)
		return cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");
	a = json_number_value(have);
	b = json_number_value(most);
	/* where 0 is no "no limit" but another limit, the less of the two counts (setup/jail_spec.c) */
	if (b > 0 && a <= 0 && key->offset == offsetof(struct cb_policy, workspace_size))
		p->workspace_size_capped = true;
	if (key->ceiling == CB_CEILING_LIMIT ? b > 0 && (a <= 0 || a > b) : a > b)
		return cb_policy_key_set(p, key, value, origin, err);
	return 0;
}

/* Words: a ceiling that is not built stands for the next stricter one that is. */
static int bound_word(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		      struct cb_err *err)
{
	json_auto_t *have = cb_policy_key_get(p, key);
	json_auto_t *stricter = NULL;
	const struct cb_key_word *most = cb_policy_key_word(key, json_string_value(value));
	const struct cb_key_word *now = cb_policy_key_word(key, json_string_value(have));

	while (most != NULL && most->value < 0 && most > key->words)
		most--;
	if (most == NULL || most->value < 0)
		return cb_policy_key_set(p, key, value, origin, err);
	if (now != NULL && most >= now)
		return 0;
	stricter = json_string(most->word);
	return stricter != NULL ? cb_policy_key_set(p, key, stricter, origin, err) : -ENOMEM;
}

static int bound_list(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		      struct cb_err *err)
{
	struct cb_policy bound = { 0 };
	struct cb_strv *mine = AT(p, key, struct cb_strv), *theirs = AT(&bound, key, struct cb_strv), result = { 0 };
	bool subset = key->ceiling == CB_CEILING_SUBSET;
	int r = cb_policy_key_set(&bound, key, value, origin, err);

	for (size_t i = 0; i < mine->count && r == 0; i++) {
		if (!subset || cb_strv_has(theirs, mine->items[i]))
			r = cb_strv_add(&result, mine->items[i]);
		else
			cb_log(CB_LOG_INFO, "%s takes \"%s\" out of %s", origin, mine->items[i], key->name);
	}
	for (size_t i = 0; i < theirs->count && r == 0 && !subset; i++)
		if (!cb_strv_has(mine, theirs->items[i]))
			r = cb_strv_add(&result, theirs->items[i]);
	cb_policy_key_release(&bound, key);
	if (r < 0) {
		cb_strv_release(&result);
		return r;
	}
	cb_strv_release(mine);
	*mine = result;
	return 0;
}

int cb_policy_key_bound(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
			struct cb_err *err)
{
	switch (key->ceiling) {
	case CB_CEILING_SMALLER:
	case CB_CEILING_LIMIT:
		return bound_number(p, key, value, origin, err);
	case CB_CEILING_STRICTER:
		return bound_word(p, key, value, origin, err);
	case CB_CEILING_SUBSET:
	case CB_CEILING_UNION:
		if (key->type != CB_KEY_MOUNTS)
			return bound_list(p, key, value, origin, err);
		if (json_is_array(value) && json_array_size(value) == 0)
			return cb_policy_key_set(p, key, value, origin, err);
		return cb_err_set(err, CB_E_SYNTAX, "policy", "Write [] there, or leave it out.",
				  "%s: %s: a ceiling can only forbid all mounts", origin, key->name);
	case CB_CEILING_NONE:
		break;
	}
	return cb_err_set(err, CB_E_SYNTAX, "policy", "Take it out of the file.",
			  "%s: %s: a ceiling can't bound this key", origin, key->name);
}
