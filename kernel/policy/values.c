/* Values of policy keys: checking, setting, bounding and showing them, by type.
 *
 * Role: the half of keys.h that is code. Trust domain: supervisor, at start; input is a user's or an
 * administrator's file. Invariants: a value is stored only when it is valid and built; every error names origin, key,
 * the value and what is allowed.
 */
#include "keys.h"

#include <cellblock/host_memory.h>
#include <errno.h>
#include <limits.h>
#include <math.h>

#include "nearest.h"
#include "paths.h"

#define MAX_ITEMS 1000

#define AT(p, key, type) ((type *)(void *)((char *)(p) + (key)->offset))
#define AT_CONST(p, key, type) ((type const *)(const void *)((const char *)(p) + (key)->offset))

/* "a list of …" */
static const char *const items_allowed[] = {
	[CB_ITEM_TEXT] = "texts, none empty",
	[CB_ITEM_RELATIVE] = "relative paths without empty, `.` and `..` parts (as secrets, a/b)",
	[CB_ITEM_WHOLE_RELATIVE] =
		"relative paths without empty, `.` and `..` parts (as .config/x), and without `*` and `?`",
	[CB_ITEM_VARIABLE] = "variables' names, `*` at the end allowed",
	[CB_ITEM_MODULE] = "modules' names, as numpy, numpy.linalg, numpy.*",
	[CB_ITEM_WHOLE_MODULE] = "modules' names, as numpy, numpy.linalg",
};

static size_t items_max(const struct cb_policy_key *key)
{
	return key->maximum > 0 ? (size_t)key->maximum : MAX_ITEMS;
}

static void list_words(const struct cb_policy_key *key, char *text, size_t size)
{
	size_t n = 0;

	for (const struct cb_key_word *w = key->words; w->word != NULL && n < size; w++)
		n += (size_t)snprintf(text + n, size - n, "%s\"%s\"%s", n > 0 ? ", " : "", w->word,
				      w->value < 0 ? " (not built)" : "");
}

void cb_policy_key_allowed(const struct cb_policy_key *key, char *ret_text, size_t size)
{
	const char *zero = key->zero_is_none ? ", or 0 for none" : "";
	char most[60] = "";

	if (key->maximum > 0 && key->maximum < 1e15)
		snprintf(most, sizeof(most), " and at most %.0f", key->maximum);
	switch (key->type) {
	case CB_KEY_SECONDS:
	case CB_KEY_CORES:
	case CB_KEY_COUNT:
		snprintf(ret_text, size, "%s from %.10g to %.10g%s",
			 key->type == CB_KEY_SECONDS ? "a number of seconds"
			 : key->type == CB_KEY_CORES ? "a number of cores"
						     : "a whole number",
			 key->minimum, key->maximum, zero);
		return;
	case CB_KEY_SIZE:
	case CB_KEY_SHARE:
		snprintf(ret_text, size,
			 "bytes as a whole number or with K, M, G or T (\"512M\")%s, at least %.0f%s%s",
			 key->type == CB_KEY_SHARE ? ", or a share of the memory (\"75%\")" : "", key->minimum, most,
			 zero);
		return;
	case CB_KEY_WORD:
	case CB_KEY_EITHER:
		list_words(key, ret_text, size);
		return;
	case CB_KEY_FOLDER:
		snprintf(ret_text, size, "a path, not empty");
		return;
	case CB_KEY_FILE:
		snprintf(ret_text, size, "\"none\"%s, or a path with a '/'",
			 key->words_ok ? ", \"user\", \":memory:\"" : "");
		return;
	case CB_KEY_LIST:
		snprintf(ret_text, size, "a list of %s", items_allowed[key->item]);
		if (key->maximum > 0)
			snprintf(ret_text, size, "a list of at most %zu %s", items_max(key), items_allowed[key->item]);
		return;
	case CB_KEY_MAP:
		snprintf(ret_text, size, "an object of texts, by variables' names");
		return;
	case CB_KEY_MOUNTS:
		snprintf(ret_text, size,
			 "a list of objects: \"source\" and \"target\" (absolute paths), \"mode\" (\"ro\" or \"rw\")");
		return;
	}
}

static int refuse(const struct cb_policy_key *key, const json_t *value, const char *origin, const char *why,
		  struct cb_err *err)
{
	char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	char allowed[300], cure[340];
	int code;

	cb_policy_key_allowed(key, allowed, sizeof(allowed));
	snprintf(cure, sizeof(cure), "Allowed: %s.", allowed);
	code = cb_err_set(err, CB_E_SYNTAX, "policy", cure, "%s: %s: %.120s %s", origin, key->name,
			  shown != NULL ? shown : "the value", why);
	free(shown);
	return code;
}

static int not_built(const struct cb_policy_key *key, const char *shown, const char *origin, struct cb_err *err)
{
	char cure[400];

	if (key->words != NULL) {
		char words[300] = "";

		list_words(key, words, sizeof(words));
		snprintf(cure, sizeof(cure), "Known values: %s.", words);
	} else {
		snprintf(cure, sizeof(cure), "Leave %s out, or set it to [].", key->name);
	}
	return cb_err_set(err, CB_E_NOT_BUILT, "policy", cure, "%s: %s: %.120s is not built yet", origin, key->name,
			  shown);
}

/* ---- numbers ---- */

int cb_policy_parse_size(const char *text, bool share, double *ret_value)
{
	static const char units[] = "KMGT";
	char *end;
	const char *unit;
	unsigned long long n;
	double value;

	if (text[0] < '0' || text[0] > '9')
		return CB_E_SYNTAX;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno != 0)
		return CB_E_SYNTAX;
	value = (double)n;
	if (share && strcmp(end, "%") == 0) {
		if (n < 1 || n > 100)
			return CB_E_SYNTAX;
		*ret_value = floor(value / 100.0 * (double)cb_host_memory());
		return 0;
	}
	if (*end != '\0') {
		unit = strchr(units, *end);
		if (unit == NULL || end[1] != '\0')
			return CB_E_SYNTAX;
		value *= pow(1024, (double)(unit - units + 1));
	}
	*ret_value = value;
	return 0;
}

static int number_of(const struct cb_policy_key *key, const json_t *value, double *ret_number)
{
	bool whole = key->type == CB_KEY_COUNT || key->type == CB_KEY_SIZE || key->type == CB_KEY_SHARE;
	double n;

	if (json_is_integer(value))
		n = (double)json_integer_value(value);
	else if (json_is_real(value) && !whole)
		n = json_real_value(value);
	else if (!json_is_string(value) || (key->type != CB_KEY_SIZE && key->type != CB_KEY_SHARE) ||
		 cb_policy_parse_size(json_string_value(value), key->type == CB_KEY_SHARE, &n) < 0)
		return CB_E_SYNTAX;
	if (key->zero_is_none && n >= 0 && n <= 0) {
		*ret_number = 0;
		return 0;
	}
	if (!(n >= key->minimum && n <= key->maximum))
		return CB_E_SYNTAX;
	*ret_number = n;
	return 0;
}

static double number_get(const struct cb_policy *p, const struct cb_policy_key *key)
{
	return key->type == CB_KEY_SECONDS || key->type == CB_KEY_CORES ? *AT_CONST(p, key, double)
									: (double)*AT_CONST(p, key, uint64_t);
}

static void number_put(struct cb_policy *p, const struct cb_policy_key *key, double n)
{
	if (key->type == CB_KEY_SECONDS || key->type == CB_KEY_CORES)
		*AT(p, key, double) = n;
	else
		*AT(p, key, uint64_t) = (uint64_t)n;
}

/* ---- words ---- */

const struct cb_key_word *cb_policy_key_word(const struct cb_policy_key *key, const char *word)
{
	for (const struct cb_key_word *w = key->words; word != NULL && w->word != NULL; w++)
		if (strcmp(w->word, word) == 0)
			return w;
	return NULL;
}

static int word_get(const struct cb_policy *p, const struct cb_policy_key *key)
{
	return key->type == CB_KEY_EITHER ? *AT_CONST(p, key, bool) : *AT_CONST(p, key, int);
}

static void word_put(struct cb_policy *p, const struct cb_policy_key *key, int value)
{
	if (key->type == CB_KEY_EITHER)
		*AT(p, key, bool) = value != 0;
	else
		*AT(p, key, int) = value;
}

static int word_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		    struct cb_err *err)
{
	const char *word = json_string_value(value);
	const struct cb_key_word *w = cb_policy_key_word(key, word);
	char why[100] = "is not allowed";

	if (w == NULL) {
		struct cb_nearest near = CB_NEAREST(word != NULL ? word : "");

		for (w = key->words; w->word != NULL; w++)
			cb_nearest_offer(&near, w->word);
		if (near.best != NULL)
			snprintf(why, sizeof(why), "is not allowed; did you mean \"%s\"?", near.best);
		return refuse(key, value, origin, why, err);
	}
	if (w->value < 0) {
		char shown[80];

		snprintf(shown, sizeof(shown), "\"%s\"", w->word);
		return not_built(key, shown, origin, err);
	}
	word_put(p, key, w->value);
	return 0;
}

/* ---- texts and lists ---- */

/* The length of the name that a text begins with; 0 if it begins with none. Of ASCII: Python's other letters would have
 * to be normalised before they are compared. */
static size_t name_length(const char *text)
{
	bool digit = text[0] >= '0' && text[0] <= '9';

	return digit ? 0 : strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
}

static bool is_variable(const char *name, bool star)
{
	size_t n = name_length(name);

	if (star && name[n] == '*' && name[n + 1] == '\0')
		return true;
	return n > 0 && name[n] == '\0';
}

static bool is_module(const char *name, bool star)
{
	for (const char *part = name;; part++) {
		size_t n = name_length(part);

		if (star && strcmp(part, "*") == 0)
			return true;
		if (n == 0 || n > NAME_MAX)
			return false;
		part += n;
		if (*part != '.')
			return *part == '\0';
	}
}

/* What a jail's description takes (sandbox/client/spec.c): an error that came from there would name neither file nor
 * key. */
static bool is_relative(const char *path)
{
	if (path[0] == '~')
		return false;
	for (const char *part = path;; part++) {
		size_t n = strcspn(part, "/");

		if (n == 0 || n > NAME_MAX || (n <= 2 && strncmp(part, "..", n) == 0))
			return false;
		part += n;
		if (*part == '\0')
			return true;
	}
}

static bool item_is_good(const struct cb_policy_key *key, const char *item)
{
	if (item == NULL || item[0] == '\0' || strlen(item) > 4000)
		return false;
	switch (key->item) {
	case CB_ITEM_RELATIVE:
		return is_relative(item);
	case CB_ITEM_WHOLE_RELATIVE: /* nothing looks for names that match: what such a path means would not be shown */
		return is_relative(item) && strpbrk(item, "*?") == NULL;
	case CB_ITEM_VARIABLE:
		return is_variable(item, true);
	case CB_ITEM_MODULE:
		return is_module(item, true);
	case CB_ITEM_WHOLE_MODULE:
		return strlen(item) <= CB_PRELOAD_NAME_MAX && is_module(item, false);
	case CB_ITEM_TEXT:
		break;
	}
	return true;
}

static int list_of(const struct cb_policy_key *key, const json_t *value, struct cb_strv *ret_list)
{
	struct cb_strv list = { 0 };
	const json_t *item;
	size_t i;
	int r = 0;

	if (!json_is_array(value) || json_array_size(value) > items_max(key))
		return CB_E_SYNTAX;
	json_array_foreach(value, i, item)
	{
		const char *text = json_string_value(item);

		r = item_is_good(key, text) ? cb_strv_add(&list, text) : CB_E_SYNTAX;
		if (r < 0)
			break;
	}
	if (r < 0)
		cb_strv_release(&list);
	else
		*ret_list = list;
	return r;
}

static int map_of(const json_t *value, struct cb_strv *ret_list)
{
	struct cb_strv list = { 0 };
	void *at;
	int r = 0;

	if (!json_is_object(value) || json_object_size(value) > MAX_ITEMS)
		return CB_E_SYNTAX;
	/* jansson's iterators take a non-const object but do not change it. */
	json_auto_t *object = json_deep_copy(value);

	for (at = json_object_iter(object); at != NULL && r == 0; at = json_object_iter_next(object, at)) {
		const char *name = json_object_iter_key(at), *text = json_string_value(json_object_iter_value(at));

		r = text != NULL && is_variable(name, false) ? cb_strv_addf(&list, "%s=%s", name, text) : CB_E_SYNTAX;
	}
	if (object == NULL)
		r = -ENOMEM;
	if (r < 0)
		cb_strv_release(&list);
	else
		*ret_list = list;
	return r;
}

static int path_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		    struct cb_err *err)
{
	const char *text = json_is_null(value) && key->type == CB_KEY_FILE ? "none" : json_string_value(value);
	char **field = AT(p, key, char *), *copy = NULL;

	if (text == NULL || text[0] == '\0' || strlen(text) > 4000)
		return refuse(key, value, origin, "is not allowed", err);
	if (key->type == CB_KEY_FILE && strcmp(text, "none") != 0) {
		bool word = key->words_ok && (strcmp(text, ":memory:") == 0 || strcmp(text, "user") == 0);

		if (!word && strchr(text, '/') == NULL)
			return refuse(key, value, origin, "is neither a known word nor a path with a '/'", err);
		copy = word ? strdup(text) : cb_path_expand(text);
	} else if (key->type == CB_KEY_FOLDER) {
		copy = cb_path_expand(text);
	}
	if (copy == NULL && (key->type == CB_KEY_FOLDER || strcmp(text, "none") != 0))
		return cb_err_set(err, -ENOMEM, "policy", NULL, "%s: %s: no memory, or no home folder", origin,
				  key->name);
	free(*field);
	*field = copy;
	return 0;
}

/* ---- mounts ---- */

static int mount_of(const json_t *item, struct cb_bind *ret_bind, char *why, size_t size)
{
	const char *source = json_string_value(json_object_get(item, "source"));
	const char *target = json_string_value(json_object_get(item, "target"));
	const char *mode = json_string_value(json_object_get(item, "mode"));
	size_t known = (size_t)(source != NULL) + (target != NULL) + (mode != NULL);
	CB_AUTO_PATH from = source != NULL ? cb_path_expand(source) : NULL;

	if (!json_is_object(item) || from == NULL || from[0] != '/' || known != json_object_size(item)) {
		snprintf(why, size, "is no object of an absolute \"source\", \"target\" and \"mode\"");
		return CB_E_SYNTAX;
	}
	if ((target != NULL && target[0] != '/') ||
	    (mode != NULL && strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)) {
		snprintf(why, size, "has a target that is not absolute, or a mode that is neither \"ro\" nor \"rw\"");
		return CB_E_SYNTAX;
	}
	ret_bind->source = cb_path_absolute(from, NULL);
	ret_bind->target = cb_path_absolute(target != NULL ? target : from, NULL);
	ret_bind->mode = mode != NULL && mode[1] == 'w' ? CB_BIND_RW : CB_BIND_RO;
	return ret_bind->source != NULL && ret_bind->target != NULL ? 0 : -ENOMEM;
}

static void mounts_free(struct cb_bind *mounts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(mounts[i].source);
		free(mounts[i].target);
		free(mounts[i].reason);
	}
	free(mounts);
}

static int mounts_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		      struct cb_err *err)
{
	size_t n = json_array_size(value);
	char why[128] = "is not a list";
	struct cb_bind *mounts;
	int r = 0;

	if (!json_is_array(value) || n > MAX_ITEMS)
		return refuse(key, value, origin, why, err);
	mounts = calloc(n + 1, sizeof(*mounts));
	if (mounts == NULL)
		return cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");
	for (size_t i = 0; i < n && r == 0; i++) {
		r = mount_of(json_array_get(value, i), &mounts[i], why, sizeof(why));
		if (r == CB_E_SYNTAX)
			refuse(key, json_array_get(value, i), origin, why, err);
	}
	if (r < 0) {
		mounts_free(mounts, n);
		return r == CB_E_SYNTAX ? r : cb_err_set(err, r, "policy", NULL, "out of memory");
	}
	mounts_free(p->mounts, p->nmounts);
	p->mounts = mounts;
	p->nmounts = n;
	return 0;
}

/* ---- all types ---- */

static int list_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		    struct cb_err *err)
{
	struct cb_strv list = { 0 }, *field = AT(p, key, struct cb_strv);
	int r = key->type == CB_KEY_MAP ? map_of(value, &list) : list_of(key, value, &list);

	if (r == CB_E_SYNTAX)
		return refuse(key, value, origin, "is not allowed", err);
	if (r < 0)
		return cb_err_set(err, r, "policy", NULL, "out of memory");
	if (key->not_built && list.count > 0) {
		char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		r = not_built(key, shown != NULL ? shown : "the value", origin, err);
		free(shown);
		cb_strv_release(&list);
		return r;
	}
	cb_strv_release(field);
	*field = list;
	return 0;
}

static int number_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		      struct cb_err *err)
{
	double n;

	if (number_of(key, value, &n) < 0)
		return refuse(key, value, origin, "is not allowed", err);
	number_put(p, key, n);
	return 0;
}

int cb_policy_key_set(struct cb_policy *p, const struct cb_policy_key *key, const json_t *value, const char *origin,
		      struct cb_err *err)
{
	switch (key->type) {
	case CB_KEY_SECONDS:
	case CB_KEY_CORES:
	case CB_KEY_COUNT:
	case CB_KEY_SIZE:
	case CB_KEY_SHARE:
		return number_set(p, key, value, origin, err);
	case CB_KEY_WORD:
	case CB_KEY_EITHER:
		return word_set(p, key, value, origin, err);
	case CB_KEY_FOLDER:
	case CB_KEY_FILE:
		return path_set(p, key, value, origin, err);
	case CB_KEY_LIST:
	case CB_KEY_MAP:
		return list_set(p, key, value, origin, err);
	case CB_KEY_MOUNTS:
		return mounts_set(p, key, value, origin, err);
	}
	return CB_E_UNKNOWN;
}

/* A list as `a,b` or as JSON; numbers as JSON; anything else as it stands. */
static json_t *text_to_json(const struct cb_policy_key *key, const char *text)
{
	json_t *list;

	if (key->type == CB_KEY_LIST && text[0] != '[') {
		list = json_array();
		for (const char *item = text; *item != '\0'; item += strcspn(item, ","), item += *item == ',') {
			if (json_array_append_new(list, json_stringn(item, strcspn(item, ","))) == 0)
				continue;
			json_decref(list); /* without the item it would be another list */
			return NULL;
		}
		return list;
	}
	if (key->type == CB_KEY_WORD || key->type == CB_KEY_EITHER || key->type == CB_KEY_FOLDER ||
	    key->type == CB_KEY_FILE)
		return json_string(text);
	list = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	return list != NULL ? list : json_string(text);
}

int cb_policy_key_set_text(struct cb_policy *p, const struct cb_policy_key *key, const char *text, const char *origin,
			   struct cb_err *err)
{
	json_auto_t *value = text_to_json(key, text);

	if (value == NULL)
		return cb_err_set(err, CB_E_SYNTAX, "policy", NULL, "%s: %s: the value is not UTF-8", origin,
				  key->name);
	return cb_policy_key_set(p, key, value, origin, err);
}

int cb_policy_key_default(struct cb_policy *p, const struct cb_policy_key *key, bool agent, struct cb_err *err)
{
	const char *text = agent && key->agent != NULL ? key->agent : key->notebook;
	json_auto_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

	return value != NULL ? cb_policy_key_set(p, key, value, "built-in policy", err) : -ENOMEM;
}

static json_t *mounts_get(const struct cb_policy *p)
{
	json_t *list = json_array();

	for (size_t i = 0; i < p->nmounts; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "source", p->mounts[i].source, "target",
						      p->mounts[i].target, "mode",
						      p->mounts[i].mode == CB_BIND_RW ? "rw" : "ro"));
	return list;
}

static json_t *list_get(const struct cb_strv *items)
{
	json_t *list = json_array();

	for (size_t i = 0; i < items->count; i++)
		json_array_append_new(list, json_string(items->items[i]));
	return list;
}

static json_t *map_get(const struct cb_strv *items)
{
	json_t *map = json_object();

	for (size_t i = 0; i < items->count; i++) {
		size_t n = strcspn(items->items[i], "=");
		CB_AUTO_PATH name = strndup(items->items[i], n);

		if (name != NULL)
			json_object_set_new(map, name, json_string(items->items[i] + n + 1));
	}
	return map;
}

json_t *cb_policy_key_get(const struct cb_policy *p, const struct cb_policy_key *key)
{
	const char *path;

	switch (key->type) {
	case CB_KEY_SECONDS:
	case CB_KEY_CORES:
		return json_real(number_get(p, key));
	case CB_KEY_COUNT:
	case CB_KEY_SIZE:
	case CB_KEY_SHARE:
		return json_integer((json_int_t)*AT_CONST(p, key, uint64_t));
	case CB_KEY_WORD:
	case CB_KEY_EITHER:
		for (const struct cb_key_word *w = key->words; w->word != NULL; w++)
			if (w->value == word_get(p, key))
				return json_string(w->word);
		return json_null();
	case CB_KEY_FOLDER:
	case CB_KEY_FILE:
		path = *AT_CONST(p, key, char *);
		return json_string(path != NULL ? path : "none");
	case CB_KEY_LIST:
		return list_get(AT_CONST(p, key, struct cb_strv));
	case CB_KEY_MAP:
		return map_get(AT_CONST(p, key, struct cb_strv));
	case CB_KEY_MOUNTS:
		return mounts_get(p);
	}
	return NULL;
}

void cb_policy_key_release(struct cb_policy *p, const struct cb_policy_key *key)
{
	if (key->type == CB_KEY_LIST || key->type == CB_KEY_MAP) {
		cb_strv_release(AT(p, key, struct cb_strv));
	} else if (key->type == CB_KEY_FOLDER || key->type == CB_KEY_FILE) {
		free(*AT(p, key, char *));
		*AT(p, key, char *) = NULL;
	} else if (key->type == CB_KEY_MOUNTS) {
		mounts_free(p->mounts, p->nmounts);
		p->mounts = NULL;
		p->nmounts = 0;
	}
}
