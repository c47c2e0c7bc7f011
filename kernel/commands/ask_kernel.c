/* Asking a running kernel, as its client: see ask_kernel.h.
 *
 * Role: finds the connection file as Jupyter does, signs one request, believes one reply whose signature holds. Trust
 * domain: supervisor's program. The key stays in this process.
 */
#include "ask_kernel.h"

#include <arpa/inet.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/json_scan.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "jupyter/message.h"
#include "policy/paths.h"

#define STEP "kernel"
#define INFO_MS 60000 /* for the answer that every kernel gives at once */
#define STEP_MS 5000
#define CONNECT_MS 500
#define ABOUT_MS 5000 /* a kernel that is silent for so long is listed without figures */
#define MAX_PARTS 16

/* ---- files ---- */

static char *runtime_folder(void)
{
	const char *runtime = getenv("JUPYTER_RUNTIME_DIR"), *data = getenv("JUPYTER_DATA_DIR"),
		   *share = getenv("XDG_DATA_HOME");
	CB_AUTO_PATH home = cb_path_home();

	if (runtime != NULL && runtime[0] == '/')
		return strdup(runtime);
	if (data != NULL && data[0] == '/')
		return cb_path_format("%s/runtime", data);
	if (share != NULL && share[0] == '/')
		return cb_path_format("%s/jupyter/runtime", share);
	return home != NULL ? cb_path_format("%s/.local/share/jupyter/runtime", home) : NULL;
}

static int socket_to(const struct cb_connection *conn, int *ret_fd, struct sockaddr_storage *ret_address,
		     socklen_t *ret_len)
{
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)conn->port[CB_CONTROL]) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = in.sin_port };

	if (conn->ipc) {
		snprintf(local.sun_path, sizeof(local.sun_path), "%s-%d", conn->ip, conn->port[CB_CONTROL]);
		memcpy(ret_address, &local, *ret_len = sizeof(local));
	} else if (inet_pton(AF_INET, conn->ip, &in.sin_addr) == 1) {
		memcpy(ret_address, &in, *ret_len = sizeof(in));
	} else if (inet_pton(AF_INET6, conn->ip, &in6.sin6_addr) == 1) {
		memcpy(ret_address, &in6, *ret_len = sizeof(in6));
	} else {
		return 1; /* another kind of address: believed */
	}
	*ret_fd = socket(ret_address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return *ret_fd < 0 ? -errno : 0;
}

/* Files of kernels that were killed stay behind: who listens, lives. `silent`: the answer for who neither takes a
 * connection nor refuses it in time, as one that does listen may on a machine that is very busy. */
static bool is_alive(const char *file, bool silent)
{
	struct cb_connection conn = { 0 };
	struct cb_err ignored = { 0 };
	struct sockaddr_storage address;
	socklen_t len, size = sizeof(int);
	CB_AUTO_FD fd = -1;
	int failure = 0, r;

	if (cb_connection_load(file, &conn, &ignored) < 0)
		return false;
	r = socket_to(&conn, &fd, &address, &len);
	cb_connection_release(&conn);
	if (r != 0)
		return r > 0;
	if (connect(fd, (const struct sockaddr *)&address, len) == 0)
		return true;
	if (errno != EINPROGRESS)
		return false;
	if (cb_fd_await(fd, POLLOUT, cb_now_ms() + CONNECT_MS) < 0)
		return silent;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0;
}

/* kernel-ID.json */
static bool names_kernel(const char *name)
{
	size_t n = strlen(name);

	return n > 12 && strncmp(name, "kernel-", 7) == 0 && strcmp(name + n - 5, ".json") == 0;
}

/* ---- asking ---- */

static int set_curve(void *sock, const struct cb_connection *conn)
{
	char public[41], secret[41];

	if (conn->curve_public[0] == '\0')
		return 0;
	if (zmq_curve_keypair(public, secret) < 0 ||
	    zmq_setsockopt(sock, ZMQ_CURVE_SERVERKEY, conn->curve_public, 41) < 0 ||
	    zmq_setsockopt(sock, ZMQ_CURVE_PUBLICKEY, public, 41) < 0 ||
	    zmq_setsockopt(sock, ZMQ_CURVE_SECRETKEY, secret, 41) < 0)
		return -zmq_errno();
	return 0;
}

static int connect_control(void *sock, const struct cb_connection *conn)
{
	int linger = 0, v6 = strchr(conn->ip, ':') != NULL, r = set_curve(sock, conn);
	CB_AUTO_PATH address = cb_path_format(conn->ipc ? "ipc://%s-%d"
					      : v6	? "tcp://[%s]:%d"
							: "tcp://%s:%d",
					      conn->ip, conn->port[CB_CONTROL]);

	if (r < 0 || address == NULL)
		return r < 0 ? r : -ENOMEM;
	(void)zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof(linger));
	(void)zmq_setsockopt(sock, ZMQ_IPV6, &v6, sizeof(v6));
	return zmq_connect(sock, address) < 0 ? -zmq_errno() : 0;
}

static int send_request(void *sock, struct cb_auth *auth, const char *type, struct cb_span content)
{
	struct cb_session session;
	struct cb_outgoing out = { .type = type,
				   .parent = CB_SPAN("{}"),
				   .metadata = CB_SPAN("{}"),
				   .content = content };
	zmq_msg_t frame[8];
	size_t n = 0;
	int r = cb_session_init(&session, NULL);

	if (r == 0)
		r = cb_outgoing_frames(&session, auth, &out, frame, &n);
	for (size_t i = 0; i < n; i++) {
		if (r == 0 && zmq_msg_send(&frame[i], sock, i + 1 < n ? ZMQ_SNDMORE : 0) < 0)
			r = -zmq_errno();
		if (r < 0)
			zmq_msg_close(&frame[i]);
	}
	return r;
}

/* Waits as long as the kernel lives, and says that it waits; or `most_ms`. What is asked for may be big, and it goes on
 * whether we wait or not. */
static int await_reply(void *sock, const char *connection_file, int most_ms)
{
	zmq_pollitem_t item = { .socket = sock, .events = ZMQ_POLLIN };

	for (int ms = 0; zmq_poll(&item, 1, STEP_MS) <= 0; ms += STEP_MS) {
		if (!is_alive(connection_file, true))
			return CB_E_CLOSED;
		if (most_ms > 0 && ms + STEP_MS >= most_ms)
			return -ETIMEDOUT;
		if (most_ms == 0)
			fprintf(stderr, "the kernel is still at work (%d s)\n", (ms + STEP_MS) / 1000);
	}
	return 0;
}

/* There is one request at a time, so there is one reply. */
static int receive_reply(void *sock, struct cb_auth *auth, struct cb_buf *ret_reply)
{
	zmq_msg_t frame[MAX_PARTS];
	struct cb_request *reply = NULL;
	const char *reason = "";
	size_t n = 0;
	bool more = true;
	int r;

	while (more && n < MAX_PARTS) {
		zmq_msg_init(&frame[n]);
		if (zmq_msg_recv(&frame[n], sock, 0) < 0) {
			zmq_msg_close(&frame[n]);
			break;
		}
		more = zmq_msg_more(&frame[n++]) != 0;
	}
	r = cb_request_from_frames(auth, CB_CONTROL, frame, n, &reply, &reason);
	if (r == 0)
		r = cb_buf_append(ret_reply, reply->content.data, reply->content.len);
	cb_request_free(reply);
	return r;
}

static int ask(void *sock, struct cb_auth *auth, const char *connection_file, const char *type, struct cb_span content,
	       int most_ms, struct cb_buf *ret_reply)
{
	int r = send_request(sock, auth, type, content);

	if (r == 0)
		r = await_reply(sock, connection_file, most_ms);
	return r == 0 ? receive_reply(sock, auth, ret_reply) : r;
}

/* Others have no answer to our requests: they must not be waited for. */
static int check_kind(void *sock, struct cb_auth *auth, const char *connection_file, int most_ms)
{
	CB_AUTO_BUF info = CB_BUF_INIT(1u << 20);
	struct cb_json_field f = { .name = "implementation", .types = CB_JSON_STRING, .required = true };
	int r = ask(sock, auth, connection_file, "kernel_info_request", CB_SPAN("{}"), most_ms, &info);

	if (r == 0)
		r = cb_json_scan_object((const char *)info.data, info.len, &f, 1, NULL);
	return r < 0 ? r : cb_json_string_is(f.ret, "cellblock") ? 0 : CB_E_UNKNOWN;
}

/* most_ms: for each of the answers; 0 = as long as the kernel lives, and a minute for what it is. */
static int ask_file(const char *connection_file, const char *type, struct cb_span content, int most_ms,
		    struct cb_buf *ret_reply, struct cb_err *err)
{
	struct cb_connection conn = { 0 };
	struct cb_auth *auth = NULL;
	void *context = NULL, *sock = NULL;
	int r = cb_connection_load(connection_file, &conn, err);

	if (r < 0)
		return r;
	r = cb_auth_new(conn.digest, conn.key, conn.key_len, &auth);
	context = zmq_ctx_new();
	sock = context != NULL ? zmq_socket(context, ZMQ_DEALER) : NULL;
	if (r == 0)
		r = sock != NULL ? connect_control(sock, &conn) : -ENOMEM;
	if (r == 0)
		r = check_kind(sock, auth, connection_file, most_ms > 0 ? most_ms : INFO_MS);
	if (r == 0)
		r = ask(sock, auth, connection_file, type, content, most_ms, ret_reply);
	if (sock != NULL)
		zmq_close(sock);
	if (context != NULL)
		zmq_ctx_term(context);
	cb_auth_free(auth);
	cb_connection_release(&conn);
	return r;
}

int cb_kernel_ask(const char *connection_file, const char *type, struct cb_span content, struct cb_buf *ret_reply,
		  struct cb_err *err)
{
	int r = ask_file(connection_file, type, content, 0, ret_reply, err);

	if (r < 0 && err->code == 0)
		cb_err_set(err, r, STEP, "Is it a Cellblock kernel, and does it run? See `cellblock list`.",
			   "no answer from the kernel of %s: %s", connection_file,
			   r == -ETIMEDOUT ? "none came in time" : cb_err_text(r));
	return r;
}

/* ---- which kernel ---- */

static int make_room(struct cb_running_list *list)
{
	size_t room = list->room > 0 ? 2 * list->room : 16;
	struct cb_running *item;

	if (list->count < list->room)
		return 0;
	if (room > CB_RUNNING_MAX)
		return -E2BIG;
	item = realloc(list->item, room * sizeof(*item));
	if (item == NULL)
		return -ENOMEM;
	list->item = item;
	list->room = room;
	return 0;
}

/* What a running kernel says of itself. Others are not ours to list; one that is silent may be ours. */
static int add_running(const char *folder, const char *name, struct cb_running_list *list)
{
	CB_AUTO_BUF reply = CB_BUF_INIT(1u << 20);
	CB_AUTO_PATH file = cb_path_format("%s/%s", folder, name);
	struct cb_err ignored = { 0 };
	struct cb_running *k;
	int r, room;

	if (file == NULL)
		return -ENOMEM;
	if (!is_alive(file, false))
		return 0;
	r = ask_file(file, "usage_request", CB_SPAN("{}"), ABOUT_MS, &reply, &ignored);
	if (r < 0 && r != -ETIMEDOUT)
		return 0;
	room = make_room(list);
	if (room < 0)
		return room;
	k = &list->item[list->count];
	snprintf(k->id, sizeof(k->id), "%.*s", (int)(strlen(name) - 12), name + 7);
	k->file = strdup(file);
	k->said = r == 0 ? json_loadb((const char *)reply.data, reply.len, 0, NULL) : NULL;
	list->count++;
	return k->file != NULL ? 0 : -ENOMEM;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct cb_running *)a)->id, ((const struct cb_running *)b)->id);
}

int cb_kernels_running(struct cb_running_list *ret, struct cb_err *err)
{
	CB_AUTO_PATH folder = runtime_folder();
	CB_AUTO_FOLDER dir = folder != NULL ? cb_folder_open(AT_FDCWD, folder, 0) : NULL;
	const struct dirent *e;
	int r = folder != NULL && dir == NULL && errno != ENOENT ? -errno : 0;

	snprintf(ret->folder, sizeof(ret->folder), "%s", folder != NULL ? folder : "Jupyter's runtime folder");
	while (r == 0 && (e = cb_folder_next(dir)) != NULL)
		if (names_kernel(e->d_name))
			r = add_running(folder, e->d_name, ret);
	if (r == 0)
		r = -errno;
	if (r < 0)
		return cb_err_set(err, r, STEP, "Kernels are found by their connection files there.",
				  "can't read %s: %s", ret->folder,
				  r == -E2BIG ? "too many kernels run" : cb_err_text(r));
	if (ret->count > 0)
		qsort(ret->item, ret->count, sizeof(ret->item[0]), by_id);
	return 0;
}

void cb_kernels_release(struct cb_running_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->item[i].file);
		json_decref(list->item[i].said);
	}
	free(list->item);
	*list = (struct cb_running_list){ 0 };
}

const json_t *cb_running_about(const struct cb_running *k, const char *key)
{
	return json_object_get(json_object_get(k->said, "cellblock"), key);
}

const char *cb_running_name(const struct cb_running *k)
{
	const char *notebook = json_string_value(cb_running_about(k, "session"));

	return notebook != NULL ? notebook : json_string_value(cb_running_about(k, "client"));
}

/* The notebook's path or the end of it, with or without its last letters. */
static bool is_called(const struct cb_running *k, const char *which)
{
	const char *name = json_string_value(cb_running_about(k, "session"));
	size_t n = name != NULL ? strlen(name) : 0, end = n, m = strlen(which);

	if (n > 6 && strcmp(name + n - 6, ".ipynb") == 0 && (m < 6 || strcmp(which + m - 6, ".ipynb") != 0))
		end = n - 6;
	return m > 0 && m <= end && memcmp(name + end - m, which, m) == 0 && (m == end || name[end - m - 1] == '/');
}

/* A word that is the notebook of one kernel and the start of another's id means neither: `discard` could take the
 * wrong one. */
static int choose(const struct cb_running_list *list, const char *which, const struct cb_running **ret,
		  struct cb_err *err)
{
	CB_AUTO_BUF names = CB_BUF_INIT(400);
	size_t found = 0;

	for (size_t i = 0; i < list->count; i++) {
		const struct cb_running *k = &list->item[i];
		const char *name = cb_running_name(k);

		if (which != NULL && strncmp(k->id, which, strlen(which)) != 0 && !is_called(k, which))
			continue;
		found++;
		*ret = k;
		(void)cb_buf_printf(&names, "%s%.36s%s%.80s%s", found > 1 ? ", " : "", k->id, name != NULL ? " (" : "",
				    name != NULL ? name : "", name != NULL ? ")" : "");
	}
	if (found > 1)
		return cb_err_set(err, -EEXIST, STEP,
				  "Name one with --kernel: its notebook's path with \".ipynb\", a longer start of its "
				  "id, or its connection file's path.",
				  "more than one kernel runs%s%.80s%s: %.*s",
				  which != NULL ? " that is meant by \"" : "", which != NULL ? which : "",
				  which != NULL ? "\"" : "", (int)names.len, (const char *)names.data);
	return found == 1 ? 0 : -ENOENT;
}

int cb_kernel_file(const char *which, char **ret_path, char **ret_name, struct cb_err *err)
{
	size_t n = which != NULL ? strlen(which) : 0;
	const struct cb_running *k = NULL;
	struct cb_running_list list = { 0 };
	int r;

	if (n > 0 && strchr(which, '/') != NULL && (n < 6 || strcmp(which + n - 6, ".ipynb") != 0)) {
		*ret_path = strdup(which);
		*ret_name = strdup(which);
		return *ret_path != NULL && *ret_name != NULL ? 0 : -ENOMEM;
	}
	r = cb_kernels_running(&list, err);
	if (r == 0)
		r = choose(&list, which, &k, err);
	if (r == -ENOENT)
		cb_err_set(err, r, STEP,
			   "`cellblock list` has those that run. Name one with --kernel: its notebook, the start of "
			   "its id, or a connection file's path.",
			   "no running kernel%s%s in %s", which != NULL ? " with this notebook or id: " : "",
			   which != NULL ? which : "", list.folder);
	if (r == 0) {
		const char *name = cb_running_name(k);

		*ret_path = strdup(k->file);
		*ret_name = cb_path_format("%s%s%s%s", k->id, name != NULL ? " (" : "", name != NULL ? name : "",
					   name != NULL ? ")" : "");
	}
	cb_kernels_release(&list);
	return r == 0 && (*ret_path == NULL || *ret_name == NULL) ? -ENOMEM : r;
}
