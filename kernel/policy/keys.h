/* The table of policy keys: one row drives parsing, --set, defaults, ceiling, messages, `explain` and docs/policy.md.
 *
 * Trust domain: supervisor, at start.
 */
#pragma once

#include <jansson.h>

#include "policy.h"

enum cb_key_type {
	CB_KEY_SECONDS, /* double */
	CB_KEY_CORES,	/* double */
	CB_KEY_COUNT,	/* uint64_t */
	CB_KEY_SIZE,	/* uint64_t, bytes: 512, "512M" */
	CB_KEY_SHARE,	/* the same, or "75%" of what the host has */
	CB_KEY_WORD,	/* an enum: one of `words` */
	CB_KEY_EITHER,	/* a bool: one of two `words` */
	CB_KEY_FOLDER,	/* char *: a path */
	CB_KEY_FILE,	/* char *: a path, or one of the words none, user, :memory: */
	CB_KEY_LIST,	/* struct cb_strv */
	CB_KEY_MAP,	/* struct cb_strv of NAME=VALUE */
	CB_KEY_MOUNTS,	/* struct cb_bind * and its count */
};

/* Words of a CB_KEY_WORD or CB_KEY_EITHER, the strictest first. value -1 = known, not built. */
struct cb_key_word {
	const char *word;
	int value;
};

enum cb_ceiling {
	CB_CEILING_NONE,     /* a ceiling cannot bound this key */
	CB_CEILING_SMALLER,  /* the smaller value wins; 0 is the smallest */
	CB_CEILING_LIMIT,    /* the smaller value wins; 0 is no limit, thus the largest */
	CB_CEILING_STRICTER, /* the word that stands first wins */
	CB_CEILING_SUBSET,   /* only items that the ceiling names stay */
	CB_CEILING_UNION,    /* the ceiling's items are added */
};

/* What an item of a list must be. */
enum cb_item {
	CB_ITEM_TEXT,	  /* any text */
	CB_ITEM_RELATIVE, /* a relative path without empty, `.` and `..` parts */
	CB_ITEM_WHOLE_RELATIVE, /* the same without `*` and `?` */
	CB_ITEM_VARIABLE, /* a variable's name, `*` allowed at its end */
	CB_ITEM_MODULE,	  /* a module's dotted name, `*` allowed as its last part */
	CB_ITEM_WHOLE_MODULE, /* a module's dotted name */
};

struct cb_policy_key {
	const char *name;
	enum cb_key_type type;
	size_t offset;
	const char *notebook;	 /* defaults, as JSON */
	const char *agent;	 /* NULL = as notebook */
	bool not_built;		 /* of lists: only the empty one */
	double minimum, maximum; /* of numbers; 0 is allowed beside them where zero_is_none. Of lists: the most items,
				    where that is less than of any */
	bool zero_is_none;
	enum cb_ceiling ceiling;
	const struct cb_key_word *words; /* ends with word NULL */
	enum cb_item item;		 /* of lists */
	bool words_ok;			 /* of files: "user" and ":memory:" are allowed too */
};

extern const struct cb_policy_key cb_policy_keys[];
extern const size_t cb_policy_keys_count;

const struct cb_policy_key *cb_policy_key_find(const char *name);

/* The row of that word, or NULL. */
const struct cb_key_word *cb_policy_key_word(const struct cb_policy_key *key, const char *word);
/* Sets one key from a JSON value. `origin` says where it comes from, for messages. CB_E_NOT_BUILT: a valid value that
 * this version cannot honour. On failure the key keeps what it had. */
int cb_policy_key_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		      struct cb_err *err);
/* The same from the text of --set. */
int cb_policy_key_set_text(struct cb_policy *p, const struct cb_policy_key *key, const char *text, const char *origin,
			   struct cb_err *err);
/* Sets the built-in default. */
int cb_policy_key_default(struct cb_policy *p, const struct cb_policy_key *key, bool agent, struct cb_err *err);
/* Bounds the key by an administrator's value. */
int cb_policy_key_bound(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
			struct cb_err *err);
/* The value as JSON, for explain. NULL = no memory. */
json_t *cb_policy_key_get(const struct cb_policy *p, const struct cb_policy_key *key);
void cb_policy_key_release(struct cb_policy *p, const struct cb_policy_key *key);
/* "a number of seconds from 0 to 1e9": what may be written. */
void cb_policy_key_allowed(const struct cb_policy_key *key, char *ret_text, size_t size);

/* "512M", or where `share` "75%" of the host's memory, in bytes. */
int cb_policy_parse_size(const char *text, bool share, double *ret_value);
/* Bytes of memory that this host, or the container around us, has. */
