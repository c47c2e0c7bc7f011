/* What the notifier reads from a hostile process: paths, descriptors' numbers, flags and addresses. The process is this
 * one, the workspace a small folder with links in it. Whatever is found lies in the workspace, under the path that is
 * told of it.
 */
#include "../../../../sandbox/notifier/calls.h"

#include <cellblock/fd.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* No listener knows of these notifications. */
bool __wrap_cb_notify_valid(const struct cb_request *q);

static char folder[] = "/tmp/cellblock-fuzz-XXXXXX";

bool __wrap_cb_notify_valid(const struct cb_request *q)
{
	(void)q;
	return true;
}

static void must(int r)
{
	if (r < 0)
		abort();
}

static void remove_folder(void)
{
	static const char *const files[] = { "a/file", "a/up", "out", "loop", "abs" };

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		(void)unlinkat(cb_notify_self.judge.root, files[i], 0);
	(void)unlinkat(cb_notify_self.judge.root, "a/b", AT_REMOVEDIR);
	(void)unlinkat(cb_notify_self.judge.root, "a", AT_REMOVEDIR);
	(void)rmdir(folder);
}

static void make_folder(void)
{
	int root;

	must(mkdtemp(folder) != NULL ? 0 : -1);
	root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	must(root);
	must(mkdirat(root, "a", 0755));
	must(mkdirat(root, "a/b", 0755));
	must(close(openat(root, "a/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644)));
	must(symlinkat("..", root, "a/up"));
	must(symlinkat("/etc", root, "out"));
	must(symlinkat("loop", root, "loop"));
	must(symlinkat(folder, root, "abs"));
	must(fchdir(root));
	cb_notify_self.judge.root = root;
	cb_notify_self.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	must(cb_notify_self.proc);
	snprintf(cb_notify_self.target, sizeof(cb_notify_self.target), "%s", folder);
	must(atexit(remove_folder));
}

static void check(const struct cb_entry *e)
{
	char link[64], path[8192], real[8192];
	ssize_t n;

	if (e->path[0] == '/' || strstr(e->path, "//") != NULL || strcmp(e->path, "..") == 0 ||
	    strncmp(e->path, "../", 3) == 0 || strstr(e->path, "/../") != NULL || strcmp(e->name, "..") == 0)
		abort();
	/* what the kernel says of the folder that was opened; for the workspace itself it is that */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", e->parent);
	n = readlink(link, real, sizeof(real) - 1);
	if (n < 0)
		abort();
	real[n] = '\0';
	snprintf(path, sizeof(path), "%s%s%s", folder, e->path[0] != '\0' ? "/" : "", e->path);
	if (strncmp(path, real, (size_t)n) != 0)
		abort();
}

/* A byte of flags, one for a descriptor, then the path; the same bytes are an address as well. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char memory[8192];
	static struct seccomp_notif n;
	static const struct cb_notify_call call = { .at = 0, .path = 1, .a = CB_NO_ARG, .b = CB_NO_ARG };
	struct cb_request q = { .n = &n, .call = &call, .caller = -1, .fd = -1 };
	struct cb_entry e = CB_ENTRY_NONE;

	if (cb_notify_self.target[0] == '\0')
		make_folder();
	if (size < 2 || size - 2 > sizeof(memory))
		return 0;
	memset(memory, 0, sizeof(memory));
	memcpy(memory, data + 2, size - 2);
	n.pid = (uint32_t)getpid();
	n.data.args[0] = (data[0] & 4) != 0 ? (uint64_t)(int64_t)AT_FDCWD : data[1];
	n.data.args[1] = (uint64_t)(uintptr_t)memory;
	if (cb_entry_find(&q, 0, 1, data[0] & 3, &e))
		check(&e);
	cb_entry_release(&e);
	n.data.args[0] = UINT64_MAX; /* no descriptor: as far as the address */
	n.data.args[2] = data[1];
	cb_serve_connect(&q);
	if (q.error == 0)
		abort();
	cb_fd_close(&q.caller);
	return 0;
}
