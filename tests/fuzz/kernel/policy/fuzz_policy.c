/* Policy texts, as policy and as ceiling: whatever the text, an error with words or a policy whose every value can be
 * shown and set again. */
#include "policy/keys.h"
#include "policy/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int r, const struct cb_err *err)
{
	if (r < 0 && err->text[0] == '\0')
		abort();
}

static void check_values(struct cb_policy *p)
{
	struct cb_err err = { 0 };

	for (size_t i = 0; i < cb_policy_keys_count; i++) {
		json_t *value = cb_policy_key_get(p, &cb_policy_keys[i]);

		if (value == NULL || cb_policy_key_set(p, &cb_policy_keys[i], value, "again", &err) < 0)
			abort();
		json_decref(value);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cb_policy p;
	struct cb_err err = { 0 };

	if (cb_policy_defaults(size % 2 == 0 ? "notebook" : "agent", &p, &err) < 0)
		abort();
	check(cb_policy_parse(&p, false, "policy", (const char *)data, size, &err), &err);
	check_values(&p);
	err = (struct cb_err){ 0 };
	check(cb_policy_parse(&p, true, "ceiling", (const char *)data, size, &err), &err);
	check_values(&p);
	cb_policy_release(&p);
	return 0;
}
