/* Reading and completing the connection file.
 *
 * Role: turns the JSON that a client wrote into struct cb_connection, checks every field, writes chosen ports back.
 * Trust domain: supervisor, at start; the file holds the signing key, so nothing of its values is ever logged.
 * Invariants: known keys have exactly one type and range; unknown keys are ignored (clients add their own) and kept on
 * saving; what is returned is complete: digest and scheme set, key possibly empty, curve keys both or none.
 */
#include "connection_file.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "files.h"
#include "policy/paths.h"

#define MAX_FILE (256u << 10)
#define STEP "connection file"

static const char *const channel_names[CB_NCHANNELS] = {
	[CB_SHELL] = "shell", [CB_IOPUB] = "iopub", [CB_STDIN] = "stdin", [CB_CONTROL] = "control", [CB_HB] = "hb",
};

const char *cb_channel_name(enum cb_channel channel)
{
	return channel_names[channel];
}

/* A text field; absent or null leaves *ret_text NULL. */
static int take_text(const json_t *root, const char *name, size_t max, char **ret_text, const char *path,
		     struct cb_err *err)
{
	const json_t *value = json_object_get(root, name);

	if (value == NULL || json_is_null(value))
		return 0;
	if (!json_is_string(value) || json_string_length(value) > max)
		return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: %s must be a text of at most %zu bytes", path,
				  name, max);
	*ret_text = strdup(json_string_value(value));
	return *ret_text != NULL ? 0 : cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
}

static int take_ports(const json_t *root, struct cb_connection *c, const char *path, struct cb_err *err)
{
	for (int i = 0; i < CB_NCHANNELS; i++) {
		char name[32];
		const json_t *value;
		json_int_t port;

		snprintf(name, sizeof(name), "%s_port", channel_names[i]);
		value = json_object_get(root, name);
		port = value == NULL ? 0 : json_is_integer(value) ? json_integer_value(value) : -1;
		if (port < 0 || port > 65535)
			return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: %s must be a whole number from 0 to 65535",
					  path, name);
		c->port[i] = (int)port;
		for (int j = 0; j < i && port != 0; j++)
			if (c->port[j] == c->port[i])
				return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: %s_port and %s are both %d", path,
						  channel_names[j], name, c->port[i]);
	}
	return 0;
}

static int take_transport(const json_t *root, struct cb_connection *c, const char *path, struct cb_err *err)
{
	CB_AUTO_PATH transport = NULL;
	int r = take_text(root, "transport", 16, &transport, path, err);

	if (r == 0)
		r = take_text(root, "ip", 1024, &c->ip, path, err);
	if (r < 0)
		return r;
	if (transport != NULL && strcmp(transport, "tcp") != 0 && strcmp(transport, "ipc") != 0)
		return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: transport must be \"tcp\" or \"ipc\"", path);
	c->ipc = transport != NULL && transport[0] == 'i';
	if (c->ip != NULL && c->ip[0] == '\0') {
		free(c->ip);
		c->ip = NULL;
	}
	if (c->ip == NULL && c->ipc) {
		size_t n = strlen(path);

		n -= n > 5 && strcmp(path + n - 5, ".json") == 0 ? 5 : 0;
		c->ip = cb_path_format("%.*s-ipc", (int)n, path);
	} else if (!c->ipc && (c->ip == NULL || strcmp(c->ip, "localhost") == 0)) {
		free(c->ip);
		c->ip = strdup("127.0.0.1");
	} else if (!c->ipc && strcmp(c->ip, "*") == 0) {
		free(c->ip);
		c->ip = strdup("0.0.0.0");
	}
	if (c->ip == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	/* "-65535" and the closing NUL still have to fit. */
	if (c->ipc && strlen(c->ip) + 7 > sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return cb_err_set(err, CB_E_TOO_BIG, STEP, "Set ip to a shorter path prefix.",
				  "%s: the ipc sockets' path is longer than a socket address holds", path);
	return 0;
}

/* libcrypto's name of a hash that clients name as Python's hashlib does: most are the same. */
static const char *digest_name(const char *scheme)
{
	static const struct {
		const char *hashlib, *libcrypto;
	} other[] = { { "blake2b", "BLAKE2B-512" }, { "blake2s", "BLAKE2S-256" }, { "sha3_224", "SHA3-224" },
		      { "sha3_256", "SHA3-256" },   { "sha3_384", "SHA3-384" },	  { "sha3_512", "SHA3-512" } };

	if (strncmp(scheme, "hmac-", 5) != 0)
		return "";
	for (size_t i = 0; i < CB_COUNT(other); i++)
		if (strcmp(scheme + 5, other[i].hashlib) == 0)
			return other[i].libcrypto;
	return scheme + 5;
}

static int take_signing(const json_t *root, struct cb_connection *c, const char *path, struct cb_err *err)
{
	const EVP_MD *digest;
	int r = take_text(root, "key", CB_KEY_MAX, &c->key, path, err);

	if (r == 0)
		r = take_text(root, "signature_scheme", 64, &c->signature_scheme, path, err);
	if (r < 0)
		return r;
	if (c->key == NULL)
		c->key = strdup("");
	if (c->signature_scheme == NULL || c->signature_scheme[0] == '\0') {
		free(c->signature_scheme);
		c->signature_scheme = strdup("hmac-sha256");
	}
	if (c->key == NULL || c->signature_scheme == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	c->key_len = strlen(c->key);
	digest = EVP_get_digestbyname(digest_name(c->signature_scheme));
	if (digest == NULL || (EVP_MD_get_flags(digest) & EVP_MD_FLAG_XOF) != 0)
		return cb_err_set(err, CB_E_SYNTAX, STEP, "Use \"hmac-sha256\".",
				  "%s: signature_scheme \"%s\" is not hmac- and a hash that libcrypto has", path,
				  c->signature_scheme);
	c->digest = strdup(digest_name(c->signature_scheme));
	return c->digest != NULL ? 0 : cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
}

static int take_curve_key(const json_t *root, const char *name, char out[41], const char *path, struct cb_err *err)
{
	static const char z85[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
	const json_t *value = json_object_get(root, name);
	const char *text = json_string_value(value);

	if (value == NULL || json_is_null(value) || (text != NULL && text[0] == '\0'))
		return 0;
	if (text == NULL || json_string_length(value) != 40 || strspn(text, z85) != 40)
		return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: %s must be 40 characters of Z85", path, name);
	memcpy(out, text, 41);
	return 0;
}

static int take_curve(const json_t *root, struct cb_connection *c, const char *path, struct cb_err *err)
{
	int r = take_curve_key(root, "curve_publickey", c->curve_public, path, err);

	if (r == 0)
		r = take_curve_key(root, "curve_secretkey", c->curve_secret, path, err);
	if (r == 0 && (c->curve_public[0] == '\0') != (c->curve_secret[0] == '\0'))
		return cb_err_set(err, CB_E_SYNTAX, STEP, NULL,
				  "%s: curve_publickey and curve_secretkey only make sense together", path);
	return r;
}

static int take_all(const json_t *root, struct cb_connection *c, const char *path, struct cb_err *err)
{
	int r;

	if (json_object_get(root, "registration_port") != NULL)
		return cb_err_set(err, CB_E_NOT_BUILT, STEP, "Start the kernel with a connection file that has ports.",
				  "%s: this is a registration file; the handshake is not built yet", path);
	c->path = strdup(path);
	if (c->path == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	r = take_transport(root, c, path, err);
	if (r == 0)
		r = take_ports(root, c, path, err);
	if (r == 0)
		r = take_signing(root, c, path, err);
	if (r == 0)
		r = take_curve(root, c, path, err);
	if (r == 0)
		r = take_text(root, "kernel_name", 1024, &c->kernel_name, path, err);
	if (r == 0)
		r = take_text(root, "jupyter_session", 8192, &c->jupyter_session, path, err);
	return r;
}

/* json_decref alone would leave the key in freed memory. */
static void wipe(json_t *root, const char *name)
{
	json_t *value = json_object_get(root, name);
	size_t n = json_string_length(value);

	if (json_is_string(value) && n > 0)
		OPENSSL_cleanse((void *)(uintptr_t)json_string_value(value), n);
}

int cb_connection_parse(const char *path, const char *text, size_t len, struct cb_connection *ret_conn,
			struct cb_err *err)
{
	struct cb_connection c = { 0 };
	json_error_t where;
	json_t *root;
	int r;

	if (len == 0)
		return cb_err_set(err, CB_E_SYNTAX, STEP, "The client writes it before it starts the kernel.",
				  "%s is empty", path);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	if (root == NULL) {
		/* jansson's own text would quote from the file, which holds the key. */
		return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: not JSON at line %d, column %d", path, where.line,
				  where.column);
	}
	if (json_is_object(root))
		r = take_all(root, &c, path, err);
	else
		r = cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s: not a JSON object", path);
	wipe(root, "key");
	wipe(root, "curve_secretkey");
	json_decref(root);
	if (r < 0) {
		cb_connection_release(&c);
		return r;
	}
	*ret_conn = c;
	return 0;
}

static int check_mode(const char *path, const struct stat *st, struct cb_err *err)
{
	if (!S_ISREG(st->st_mode))
		return cb_err_set(err, -EINVAL, STEP, NULL, "%s is not a regular file", path);
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return cb_err_set(err, -EPERM, STEP, NULL, "%s belongs to another user (uid %u)", path, st->st_uid);
	if ((st->st_mode & S_IWOTH) != 0)
		return cb_err_set(err, -EPERM, STEP, "chmod 600 it.", "%s can be written by every user", path);
	if ((st->st_mode & (S_IRGRP | S_IROTH | S_IWGRP)) != 0)
		cb_log(CB_LOG_WARNING, "%s holds the signing key and is open to others (mode %03o)", path,
		       (unsigned)st->st_mode & 0777);
	return 0;
}

static int read_file(const char *path, char **ret_text, size_t *ret_len, struct cb_err *err)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return cb_err_set(err, -errno, STEP, NULL, "%s can't be opened: %s", path, strerror(errno));
	r = check_mode(path, &st, err);
	if (r < 0)
		return r;
	r = cb_fd_read_all(fd, MAX_FILE, ret_text, ret_len);
	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "%s can't be read: %s", path,
				  r == CB_E_TOO_BIG ? "larger than 256 KiB" : strerror(-r));
	return 0;
}

int cb_connection_load(const char *path, struct cb_connection *ret_conn, struct cb_err *err)
{
	CB_AUTO_PATH absolute = cb_path_absolute(path, NULL);
	char *text = NULL;
	size_t len = 0;
	int r;

	if (absolute == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	r = read_file(absolute, &text, &len, err);
	if (r < 0)
		return r;
	r = cb_connection_parse(absolute, text, len, ret_conn, err);
	OPENSSL_cleanse(text, len);
	free(text);
	return r;
}

int cb_connection_save_ports(const struct cb_connection *conn, struct cb_err *err)
{
	char *text = NULL;
	size_t len = 0;
	json_t *root;
	int r = read_file(conn->path, &text, &len, err);

	if (r < 0)
		return r;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	OPENSSL_cleanse(text, len);
	free(text);
	if (!json_is_object(root)) {
		json_decref(root);
		return cb_err_set(err, CB_E_SYNTAX, STEP, NULL, "%s has changed and is no connection file any more",
				  conn->path);
	}
	for (int i = 0; i < CB_NCHANNELS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%s_port", channel_names[i]);
		json_object_set_new(root, name, json_integer(conn->port[i]));
	}
	text = json_dumps(root, JSON_INDENT(2));
	wipe(root, "key");
	wipe(root, "curve_secretkey");
	json_decref(root);
	r = text != NULL ? cb_file_replace(conn->path, text, strlen(text), 0600) : -ENOMEM;
	if (r < 0)
		cb_err_set(err, r, STEP, NULL, "%s: the chosen ports can't be written: %s", conn->path, strerror(-r));
	if (text != NULL)
		OPENSSL_cleanse(text, strlen(text));
	free(text);
	return r;
}

void cb_connection_release(struct cb_connection *conn)
{
	if (conn->key != NULL)
		OPENSSL_cleanse(conn->key, conn->key_len);
	OPENSSL_cleanse(conn->curve_secret, sizeof(conn->curve_secret));
	free(conn->path);
	free(conn->ip);
	free(conn->key);
	free(conn->digest);
	free(conn->signature_scheme);
	free(conn->kernel_name);
	free(conn->jupyter_session);
	*conn = (struct cb_connection){ 0 };
}
