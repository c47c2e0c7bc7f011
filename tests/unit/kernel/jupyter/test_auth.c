/* Signatures: right, wrong in every way, replayed, and the window of those remembered beyond its wrap. */
#include "jupyter/auth.h"

#include <cellblock/error.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WINDOW 65536

static struct cb_auth *make(const char *digest, const char *key)
{
	struct cb_auth *a = NULL;

	assert_int_equal(cb_auth_new(digest, key, strlen(key), &a), 0);
	return a;
}

static void number(char *text, struct cb_span part[4], unsigned n)
{
	part[0] = (struct cb_span){ text, (size_t)snprintf(text, 32, "{\"n\":%u}", n) };
	part[1] = part[2] = part[3] = CB_SPAN("{}");
}

/* RFC 4231, test case 2, spread over the four parts. */
static void test_known_answers(void **state)
{
	static const struct {
		const char *digest, *hex;
	} known[] = {
		{ "sha256", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
		{ "sha512", "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
			    "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737" },
		{ "md5", "750c783e6ab0b503eaa86e310a5db738" },
	};
	struct cb_span part[4] = { CB_SPAN("what do ya "), CB_SPAN(""), CB_SPAN("want for "), CB_SPAN("nothing?") };

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct cb_auth *a = make(known[i].digest, "Jefe");
		char hex[CB_SIGNATURE_MAX];
		size_t n = 0;

		assert_int_equal(cb_auth_sign(a, part, hex, &n), 0);
		assert_int_equal(n, strlen(known[i].hex));
		assert_memory_equal(hex, known[i].hex, n);
		assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ hex, n }), 0);
		assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ hex, n }), CB_E_AUTH);
		cb_auth_free(a);
	}
}

static void test_wrong(void **state)
{
	struct cb_auth *a = make("sha256", "key"), *other = make("sha256", "kex");
	struct cb_span part[4];
	char text[32], hex[CB_SIGNATURE_MAX + 1], bad[CB_SIGNATURE_MAX + 1];
	size_t n;

	(void)state;
	number(text, part, 1);
	assert_int_equal(cb_auth_sign(a, part, hex, &n), 0);
	hex[n] = '0';
	for (size_t len = 0; len <= n + 1; len++)
		if (len != n)
			assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ hex, len }), CB_E_AUTH);
	for (size_t i = 0; i < n; i++) {
		memcpy(bad, hex, n);
		bad[i] = (char)(bad[i] == '0' ? '1' : '0');
		assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ bad, n }), CB_E_AUTH);
	}
	for (size_t i = 0; i < n; i++)
		bad[i] = hex[i] >= 'a' ? (char)(hex[i] - 'a' + 'A') : hex[i];
	assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ bad, n }), CB_E_AUTH);
	assert_int_equal(cb_auth_verify(other, part, (struct cb_span){ hex, n }), CB_E_AUTH);
	part[3] = CB_SPAN("{} ");
	assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ hex, n }), CB_E_AUTH);
	/* none of these was taken for seen */
	number(text, part, 1);
	assert_int_equal(cb_auth_verify(a, part, (struct cb_span){ hex, n }), 0);
	cb_auth_free(a);
	cb_auth_free(other);
}

static int verify_number(struct cb_auth *a, unsigned i)
{
	struct cb_span part[4];
	char text[32], hex[CB_SIGNATURE_MAX];
	size_t n;

	number(text, part, i);
	assert_int_equal(cb_auth_sign(a, part, hex, &n), 0);
	return cb_auth_verify(a, part, (struct cb_span){ hex, n });
}

static void test_replay_window(void **state)
{
	struct cb_auth *a = make("sha256", "key");
	const unsigned total = 3 * WINDOW / 2;

	(void)state;
	for (unsigned i = 0; i < total; i++)
		assert_int_equal(verify_number(a, i), 0);
	/* the last WINDOW are known, each of them; looking does not change what is known */
	for (unsigned i = total - WINDOW; i < total; i++)
		assert_int_equal(verify_number(a, i), CB_E_AUTH);
	/* older ones are forgotten, and entering one drops exactly the oldest */
	assert_int_equal(verify_number(a, 0), 0);
	assert_int_equal(verify_number(a, 0), CB_E_AUTH);
	assert_int_equal(verify_number(a, total - WINDOW + 1), CB_E_AUTH);
	assert_int_equal(verify_number(a, total - WINDOW), 0);
	cb_auth_free(a);
}

static void test_empty_key(void **state)
{
	struct cb_auth *a = make("sha256", "");
	struct cb_span part[4];
	char text[32], hex[CB_SIGNATURE_MAX];
	size_t n = 7;

	(void)state;
	number(text, part, 1);
	assert_int_equal(cb_auth_sign(a, part, hex, &n), 0);
	assert_int_equal(n, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cb_auth_verify(a, part, CB_SPAN("")), 0);
		assert_int_equal(cb_auth_verify(a, part, CB_SPAN("anything")), 0);
	}
	cb_auth_free(a);
	cb_auth_free(NULL);
}

/* Sessions of kernels are told from all others, by whoever has the key. */
static void test_marked_sessions(void **state)
{
	struct cb_auth *a = make("sha256", "key"), *same = make("sha256", "key"), *other = make("sha256", "other");
	struct cb_auth *none = make("sha256", "");
	static const uint8_t chosen[16] = { 1, 2, 3, 4, 5, 6, 0x47, 8 };
	uint8_t b[16];
	char text[40] = "\"";
	size_t n = 1;

	(void)state;
	memcpy(b, chosen, sizeof(b));
	assert_int_equal(cb_auth_mark(a, b), 0);
	assert_memory_equal(b, chosen, 8);
	for (size_t i = 0; i < 16; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
	text[n++] = '"';
	struct cb_span span = { text, n };

	assert_true(cb_auth_is_marked(a, span));
	assert_true(cb_auth_is_marked(same, span));
	assert_false(cb_auth_is_marked(other, span));
	assert_false(cb_auth_is_marked(none, span));
	for (size_t i = 0; i < n; i++) { /* every digit counts, and every sign of the form */
		char was = text[i];

		text[i] = was == '0' ? '1' : '0';
		assert_false(cb_auth_is_marked(a, span));
		text[i] = was;
	}
	assert_false(cb_auth_is_marked(a, (struct cb_span){ text, n - 1 }));
	assert_false(cb_auth_is_marked(a, CB_SPAN("")));
	assert_false(cb_auth_is_marked(a, (struct cb_span){ NULL, 0 }));
	cb_auth_free(a);
	cb_auth_free(same);
	cb_auth_free(other);
	cb_auth_free(none);
}

static void test_unknown_digest(void **state)
{
	struct cb_auth *a = NULL;

	(void)state;
	assert_int_equal(cb_auth_new("nosuch", "key", 3, &a), CB_E_UNKNOWN);
	assert_int_equal(cb_auth_new("a name of a digest that is longer than any", "key", 3, &a), CB_E_UNKNOWN);
	assert_null(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_answers),  cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_replay_window),  cmocka_unit_test(test_empty_key),
		cmocka_unit_test(test_unknown_digest), cmocka_unit_test(test_marked_sessions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
