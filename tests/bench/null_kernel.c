/* The null kernel: the floor under any Jupyter kernel on libzmq.
 *
 * It verifies nothing and runs nothing: for every shell request it signs and sends busy, execute_input,
 * execute_result, a reply and idle, as a real kernel would for `1`. What a kernel costs beyond this is its own doing.
 * Build: cc -O2 -o null_kernel null_kernel.c -lzmq -ljansson -lcrypto     Run: null_kernel CONNECTION_FILE
 */
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

static char key[256];

static void sign(char *hex, const char *const part[4], const size_t len[4])
{
	unsigned char digest[32];
	unsigned n = 0;
	HMAC_CTX *ctx = HMAC_CTX_new();

	HMAC_Init_ex(ctx, key, (int)strlen(key), EVP_sha256(), NULL);
	for (int i = 0; i < 4; i++)
		HMAC_Update(ctx, (const unsigned char *)part[i], len[i]);
	HMAC_Final(ctx, digest, &n);
	HMAC_CTX_free(ctx);
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static void publish(void *socket, const void *id, size_t id_len, const char *type, const char *parent,
		    size_t parent_len, const char *content)
{
	static int serial;
	char header[512], hex[65];

	snprintf(header, sizeof header,
		 "{\"msg_id\":\"null_%d\",\"session\":\"null\",\"username\":\"null\",\"date\":\"2026-01-01T00:00:00."
		 "000000Z\","
		 "\"msg_type\":\"%s\",\"version\":\"5.4\"}",
		 serial++, type);
	const char *const part[4] = { header, parent, "{}", content };
	const size_t len[4] = { strlen(header), parent_len, 2, strlen(content) };

	sign(hex, part, len);
	zmq_send(socket, id, id_len, ZMQ_SNDMORE);
	zmq_send(socket, "<IDS|MSG>", 9, ZMQ_SNDMORE);
	zmq_send(socket, hex, 64, ZMQ_SNDMORE);
	for (int i = 0; i < 4; i++)
		zmq_send(socket, part[i], len[i], i < 3 ? ZMQ_SNDMORE : 0);
}

static void *bound(void *ctx, int type, json_t *conn, const char *port)
{
	char url[64];
	void *socket = zmq_socket(ctx, type);

	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", (int)json_integer_value(json_object_get(conn, port)));
	if (zmq_bind(socket, url) != 0)
		perror(url);
	return socket;
}

int main(int argc, char **argv)
{
	json_t *conn = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;

	if (conn == NULL) {
		fprintf(stderr, "usage: null_kernel CONNECTION_FILE\n");
		return 2;
	}
	snprintf(key, sizeof key, "%s", json_string_value(json_object_get(conn, "key")));
	void *ctx = zmq_ctx_new();
	void *shell = bound(ctx, ZMQ_ROUTER, conn, "shell_port");
	void *iopub = bound(ctx, ZMQ_PUB, conn, "iopub_port");

	for (;;) {
		zmq_msg_t frame[8];
		int n = 0, more;

		do {
			zmq_msg_init(&frame[n]);
			zmq_msg_recv(&frame[n], shell, 0);
			more = zmq_msg_more(&frame[n++]);
		} while (more && n < 8);
		const char *part[4];
		size_t len[4];
		char hex[65];

		for (int i = 0; i < 4; i++) {
			part[i] = zmq_msg_data(&frame[3 + i]);
			len[i] = zmq_msg_size(&frame[3 + i]);
		}
		sign(hex, part, len); /* the work of verifying, without the verdict */
		json_t *header = json_loadb(part[0], len[0], 0, NULL), *content = json_loadb(part[3], len[3], 0, NULL);

		publish(iopub, "status", 6, "status", part[0], len[0], "{\"execution_state\":\"busy\"}");
		publish(iopub, "input", 5, "execute_input", part[0], len[0], "{\"code\":\"1\",\"execution_count\":1}");
		publish(iopub, "result", 6, "execute_result", part[0], len[0],
			"{\"data\":{\"text/plain\":\"1\"},\"metadata\":{},\"execution_count\":1}");
		publish(shell, zmq_msg_data(&frame[0]), zmq_msg_size(&frame[0]), "execute_reply", part[0], len[0],
			"{\"status\":\"ok\",\"execution_count\":1,\"payload\":[],\"user_expressions\":{}}");
		publish(iopub, "status", 6, "status", part[0], len[0], "{\"execution_state\":\"idle\"}");
		json_decref(header);
		json_decref(content);
		while (n > 0)
			zmq_msg_close(&frame[--n]);
	}
}
