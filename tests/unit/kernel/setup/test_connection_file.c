/* The connection file: every field's form and default, what is refused and how it is said, ports written back. */
#include "setup/connection_file.h"

#include "policy/paths.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#define KEY "secret-key-of-the-test"
#define Z85 "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"

static int parse(const char *text, struct cb_connection *c, struct cb_err *err)
{
	*err = (struct cb_err){ 0 };
	return cb_connection_parse("/run/kernel-1.json", text, strlen(text), c, err);
}

static void test_all_fields(void **state)
{
	struct cb_connection c;
	struct cb_err err;

	(void)state;
	assert_int_equal(
		parse("{\"transport\": \"tcp\", \"ip\": \"10.0.0.1\", \"shell_port\": 1, \"iopub_port\": 2, "
		      "\"stdin_port\": 3,"
		      "\"control_port\": 4, \"hb_port\": 65535, \"key\": \"" KEY
		      "\", \"signature_scheme\": \"hmac-sha512\","
		      "\"kernel_name\": \"cellblock\", \"jupyter_session\": \"/a/n.ipynb\", \"curve_publickey\": \"" Z85
		      "\","
		      "\"curve_secretkey\": \"" Z85 "\", \"something_new\": {\"x\": [1]}}",
		      &c, &err),
		0);
	assert_false(c.ipc);
	assert_string_equal(c.ip, "10.0.0.1");
	assert_int_equal(c.port[CB_SHELL], 1);
	assert_int_equal(c.port[CB_IOPUB], 2);
	assert_int_equal(c.port[CB_STDIN], 3);
	assert_int_equal(c.port[CB_CONTROL], 4);
	assert_int_equal(c.port[CB_HB], 65535);
	assert_string_equal(c.key, KEY);
	assert_int_equal(c.key_len, strlen(KEY));
	assert_string_equal(c.digest, "sha512");
	assert_string_equal(c.kernel_name, "cellblock");
	assert_string_equal(c.jupyter_session, "/a/n.ipynb");
	assert_string_equal(c.curve_public, Z85);
	assert_string_equal(c.curve_secret, Z85);
	cb_connection_release(&c);
	assert_null(c.key);
}

static void test_defaults(void **state)
{
	struct cb_connection c;
	struct cb_err err;

	(void)state;
	assert_int_equal(parse("{}", &c, &err), 0);
	assert_string_equal(c.ip, "127.0.0.1");
	assert_int_equal(c.port[CB_SHELL], 0);
	assert_string_equal(c.key, "");
	assert_int_equal(c.key_len, 0);
	assert_string_equal(c.digest, "sha256");
	assert_string_equal(c.curve_public, "");
	assert_null(c.kernel_name);
	cb_connection_release(&c);
	assert_int_equal(parse("{\"ip\": \"localhost\", \"kernel_name\": null, \"key\": null}", &c, &err), 0);
	assert_string_equal(c.ip, "127.0.0.1");
	cb_connection_release(&c);
	assert_int_equal(parse("{\"ip\": \"*\"}", &c, &err), 0);
	assert_string_equal(c.ip, "0.0.0.0");
	cb_connection_release(&c);
}

static void test_ipc(void **state)
{
	struct cb_connection c;
	struct cb_err err;
	char text[300];

	(void)state;
	assert_int_equal(parse("{\"transport\": \"ipc\"}", &c, &err), 0);
	assert_true(c.ipc);
	assert_string_equal(c.ip, "/run/kernel-1-ipc");
	cb_connection_release(&c);
	assert_int_equal(parse("{\"transport\": \"ipc\", \"ip\": \"/tmp/x\", \"shell_port\": 1}", &c, &err), 0);
	assert_string_equal(c.ip, "/tmp/x");
	cb_connection_release(&c);
	snprintf(text, sizeof(text), "{\"transport\": \"ipc\", \"ip\": \"/%0120d\"}", 0);
	assert_int_equal(parse(text, &c, &err), CB_E_TOO_BIG);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *word;
		int code;
	} bad[] = {
		{ "", "empty", CB_E_SYNTAX },
		{ "{\"key\": \"" KEY "\"", "line 1", CB_E_SYNTAX },
		{ "{\"key\": \"" KEY "\" x}", "line 1", CB_E_SYNTAX },
		{ "[]", "object", CB_E_SYNTAX },
		{ "{\"key\": \"a\", \"key\": \"b\"}", "not JSON", CB_E_SYNTAX },
		{ "{\"transport\": \"udp\"}", "transport", CB_E_SYNTAX },
		{ "{\"transport\": 1}", "transport", CB_E_SYNTAX },
		{ "{\"ip\": 1}", "ip", CB_E_SYNTAX },
		{ "{\"shell_port\": \"1\"}", "shell_port", CB_E_SYNTAX },
		{ "{\"shell_port\": -1}", "shell_port", CB_E_SYNTAX },
		{ "{\"shell_port\": 65536}", "shell_port", CB_E_SYNTAX },
		{ "{\"shell_port\": 1.0}", "shell_port", CB_E_SYNTAX },
		{ "{\"shell_port\": null}", "shell_port", CB_E_SYNTAX },
		{ "{\"shell_port\": 5, \"hb_port\": 5}", "both 5", CB_E_SYNTAX },
		{ "{\"key\": 1}", "key", CB_E_SYNTAX },
		{ "{\"signature_scheme\": \"sha256\"}", "signature_scheme", CB_E_SYNTAX },
		{ "{\"signature_scheme\": \"hmac-nonsense\"}", "signature_scheme", CB_E_SYNTAX },
		{ "{\"signature_scheme\": \"hmac-\"}", "signature_scheme", CB_E_SYNTAX },
		{ "{\"signature_scheme\": \"hmac-shake128\"}", "signature_scheme", CB_E_SYNTAX },
		{ "{\"curve_publickey\": \"" Z85 "\"}", "together", CB_E_SYNTAX },
		{ "{\"curve_publickey\": \"short\", \"curve_secretkey\": \"" Z85 "\"}", "curve_publickey",
		  CB_E_SYNTAX },
		{ "{\"curve_publickey\": \"" Z85
		  "\", \"curve_secretkey\": \",,:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"}",
		  "curve_secretkey", CB_E_SYNTAX },
		{ "{\"registration_port\": 5, \"key\": \"a\"}", "not built", CB_E_NOT_BUILT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cb_connection c;
		struct cb_err err;

		assert_int_equal(parse(bad[i].text, &c, &err), bad[i].code);
		assert_non_null(strstr(err.text, bad[i].word));
		assert_non_null(strstr(err.text, "/run/kernel-1.json"));
		assert_null(strstr(err.text, KEY)); /* a message may end up in a log */
	}
}

static void test_key_too_long(void **state)
{
	char *text = malloc(CB_KEY_MAX + 64);
	struct cb_connection c;
	struct cb_err err;

	(void)state;
	snprintf(text, CB_KEY_MAX + 64, "{\"key\": \"%0*d\"}", CB_KEY_MAX, 0);
	assert_int_equal(parse(text, &c, &err), 0);
	cb_connection_release(&c);
	snprintf(text, CB_KEY_MAX + 64, "{\"key\": \"%0*d\"}", CB_KEY_MAX + 1, 0);
	assert_int_equal(parse(text, &c, &err), CB_E_SYNTAX);
	free(text);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	CB_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(cb_fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void test_load_and_save(void **state)
{
	char folder[] = "/tmp/cb-connection-XXXXXX";
	struct cb_connection c;
	struct cb_err err = { 0 };
	struct stat st;
	json_t *root;

	(void)state;
	assert_non_null(mkdtemp(folder));
	CB_AUTO_PATH path = cb_path_format("%s/kernel.json", folder);

	assert_int_not_equal(cb_connection_load(path, &c, &err), 0);
	assert_non_null(strstr(err.text, path));
	write_file(path, "{\"key\": \"" KEY "\", \"other\": 5, \"shell_port\": 7}", 0602);
	assert_int_equal(cb_connection_load(path, &c, &err), -EPERM);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(cb_connection_load(path, &c, &err), 0);
	for (int i = 0; i < CB_NCHANNELS; i++)
		c.port[i] = 5000 + i;
	assert_int_equal(cb_connection_save_ports(&c, &err), 0);
	cb_connection_release(&c);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	root = json_load_file(path, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(root, "other")), 5);
	assert_string_equal(json_string_value(json_object_get(root, "key")), KEY);
	assert_int_equal(json_integer_value(json_object_get(root, "hb_port")), 5000 + CB_HB);
	json_decref(root);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(cb_connection_load(folder, &c, &err), -EINVAL); /* a folder */
	assert_int_equal(rmdir(folder), 0);				 /* no temporary file is left */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_fields),	 cmocka_unit_test(test_defaults),
					    cmocka_unit_test(test_ipc),		 cmocka_unit_test(test_refused),
					    cmocka_unit_test(test_key_too_long), cmocka_unit_test(test_load_and_save) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
