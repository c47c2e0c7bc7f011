/* The new root: a small tmpfs that holds links and empty folders, the host's system folders read-only, and of /etc what
 * programs need to run, the rest being made here.
 *
 * Trust domain: pid 1, before any foreign code runs. Invariants: nothing of the host is writable through this file;
 * names of the host's users, its hostname and its network are not visible (network none); homes, /root, /run and the
 * host's /tmp stay outside. After cb_step_new_root the working folder is the new root; it becomes "/" in cb_step_pivot,
 * read-only.
 */
#include "rootfs.h"

#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "overlay.h"
#include "root.h"

#include <cellblock/buffer.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STEP "new root"
#define IMAGE "run/.image"
#define MAX_HOSTS (1u << 20)

const struct cb_shown cb_root_system[] = {
	{ "usr", "programs and libraries" },
	{ "bin", "programs" },
	{ "sbin", "programs" },
	{ "lib", "libraries" },
	{ "lib32", "libraries" },
	{ "lib64", "dynamic loader" },
	{ "libx32", "libraries" },
	{ "nix/store", "libraries" },
	{ "gnu/store", "libraries" },
};
const size_t cb_root_system_count = CB_COUNT(cb_root_system);

const struct cb_shown cb_root_etc[] = {
	{ "etc/alternatives", "links of /usr/bin lead through it" },
	{ "etc/crypto-policies", "TLS settings of Fedora and its kin" },
	{ "etc/debian_version", "name of the distribution" },
	{ "etc/fonts", "fontconfig" },
	{ "etc/gai.conf", "address preference" },
	{ "etc/host.conf", "resolver" },
	{ "etc/inputrc", "readline" },
	{ "etc/ipython", "IPython's configuration for all users" },
	{ "etc/java-11-openjdk", "links of the Java runtime lead to it" },
	{ "etc/java-17-openjdk", "links of the Java runtime lead to it" },
	{ "etc/java-21-openjdk", "links of the Java runtime lead to it" },
	{ "etc/ld.so.cache", "dynamic loader" },
	{ "etc/ld.so.conf", "dynamic loader" },
	{ "etc/ld.so.conf.d", "dynamic loader" },
	{ "etc/locale.alias", "locale names" },
	{ "etc/localtime", "time zone" },
	{ "etc/lsb-release", "name of the distribution" },
	{ "etc/magic", "file types" },
	{ "etc/magic.mime", "file types" },
	{ "etc/mailcap", "file types" },
	{ "etc/matplotlibrc", "matplotlib's configuration for all users" },
	{ "etc/mime.types", "file types" },
	{ "etc/networks", "network names" },
	{ "etc/OpenCL/vendors", "OpenCL drivers" },
	{ "etc/os-release", "name of the distribution" },
	{ "etc/perl", "search path of Perl" },
	{ "etc/pki/ca-trust/extracted", "trusted certificates" },
	{ "etc/pki/tls/cert.pem", "trusted certificates" },
	{ "etc/pki/tls/certs", "trusted certificates" },
	{ "etc/pki/tls/openssl.cnf", "OpenSSL's configuration" },
	{ "etc/protocols", "protocol names" },
	{ "etc/python3", "Python's configuration" },
	{ "etc/python3.9", "Python's site configuration" },
	{ "etc/python3.10", "Python's site configuration" },
	{ "etc/python3.11", "Python's site configuration" },
	{ "etc/python3.12", "Python's site configuration" },
	{ "etc/python3.13", "Python's site configuration" },
	{ "etc/python3.14", "Python's site configuration" },
	{ "etc/R", "R's configuration" },
	{ "etc/services", "service names" },
	{ "etc/ssl/cert.pem", "trusted certificates" },
	{ "etc/ssl/certs", "trusted certificates" },
	{ "etc/ssl/openssl.cnf", "OpenSSL's configuration" },
	{ "etc/terminfo", "terminal descriptions" },
	{ "etc/texmf", "TeX, for plots with its text" },
	{ "etc/timezone", "time zone" },
	{ "var/cache/fontconfig", "font lists would be made anew in each jail" },
};
const size_t cb_root_etc_count = CB_COUNT(cb_root_etc);

const struct cb_made cb_root_made[] = {
	{ "etc/passwd",
	  "root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:user:" CB_JAIL_HOME ":/bin/sh\n"
	  "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	  NULL },
	{ "etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n", NULL },
	{ "etc/shells", "/bin/sh\n/bin/bash\n", NULL },
	{ "etc/nsswitch.conf",
	  "passwd: files\ngroup: files\nhosts: files\nnetworks: files\nservices: files\nprotocols: files\n",
	  "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nservices: files\nprotocols: files\n" },
};
const size_t cb_root_made_count = CB_COUNT(cb_root_made);

static const char *const root_folders[] = { "dev", "proc",	"tmp",	     "home", "home/user", "run", "var",
					    "etc", "var/cache", "var/empty", "mnt",  "opt",	  "sys" };

static const struct {
	const char *path, *target;
} root_links[] = { { "etc/mtab", "/proc/self/mounts" }, { "var/tmp", "/tmp" }, { "var/run", "/run" } };

int cb_step_private_mounts(struct cb_jail *jail, struct cb_err *err)
{
	(void)jail;
	if (syscall(SYS_mount, "none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return cb_mnt_fail(err, -errno, "private mounts", "making all mounts private");
	return 0;
}

/* A link is shown as the same link if it leads to what the jail has too; else what it leads to is shown instead.
 */
static bool link_is_kept(const char *path, const char *target)
{
	if (strncmp(target, "../", 3) == 0 && strchr(path, '/') == strrchr(path, '/'))
		target += 2;
	if (target[0] != '/')
		return strstr(target, "..") == NULL;
	return cb_path_within(target, "/usr") || cb_path_within(target, "/etc/alternatives");
}

/* Makes the link `path` as it is there; 1 if it leads out of what the jail has, and what it leads to is to be shown. */
static int keep_link(const char *path, const char *target)
{
	const char *slash = strrchr(path, '/');
	CB_AUTO_FD place = -1;
	char parent[64];
	int r;

	if (!link_is_kept(path, target))
		return 1;
	if (symlink(target, path) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	snprintf(parent, sizeof(parent), "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
	r = cb_place_open(parent, true, &place);
	return r < 0 ? r : symlink(target, path) < 0 ? -errno : 0;
}

/* By path, since as yet there is nothing in the new root but what was made above. */
static int make_place(const char *path, bool folder)
{
	CB_AUTO_FD place = -1;

	if ((folder ? mkdir(path, 0755) : mknod(path, S_IFREG | 0644, 0)) == 0)
		return 0;
	return errno == ENOENT ? cb_place_open(path, folder, &place) : -errno;
}

/* Shows one path of the host at the same place, read-only. Absent is fine. */
static int show_host(int host, const char *path, uint64_t attrs)
{
	char target[PATH_MAX];
	struct stat st;
	ssize_t n = readlinkat(host, path, target, sizeof(target) - 1);
	int r = 1;

	if (n > 0) {
		target[n] = '\0';
		r = keep_link(path, target);
	}
	if (r <= 0)
		return r;
	if ((n < 0 && errno != EINVAL) || fstatat(host, path, &st, 0) < 0)
		return errno == ENOENT || errno == EACCES || errno == ENOTDIR ? 0 : -errno;
	r = make_place(path, S_ISDIR(st.st_mode));
	return r < 0 ? r : cb_mnt_bind_at(host, path, attrs, path);
}

/* The same of an image: its links lead to what is in it. */
static int show_image(int image, const char *path, uint64_t attrs)
{
	CB_AUTO_FD source = -1;
	CB_AUTO_FD place = -1;
	char target[PATH_MAX];
	struct stat st;
	ssize_t n;
	int r = cb_open_in_root(image, path, O_PATH | O_NOFOLLOW, &source);

	if (r == -ENOENT || r == -EACCES || r == -ENOTDIR)
		return 0;
	n = r == 0 ? readlinkat(source, "", target, sizeof(target) - 1) : -1;
	if (n > 0) {
		target[n] = '\0';
		r = keep_link(path, target);
		if (r <= 0)
			return r;
		cb_fd_close(&source);
		r = cb_open_in_root(image, path, O_PATH, &source);
		if (r == -ENOENT)
			return 0;
	}
	if (r == 0 && fstat(source, &st) < 0)
		r = -errno;
	if (r == 0)
		r = cb_place_open(path, S_ISDIR(st.st_mode), &place);
	return r < 0 ? r : cb_mnt_bind(source, "", attrs, place);
}

int cb_image_open(const struct cb_jail *jail, int *ret_mnt, struct cb_err *err)
{
	const char *path = jail->spec->root_path;
	CB_AUTO_FD folder = -1;
	CB_AUTO_FD mnt = -1;
	int r = cb_open_nolinks(AT_FDCWD, path, O_PATH | O_DIRECTORY, &folder);

	if (r == 0)
		r = cb_mnt_clone(folder, "", CB_RO | CB_NOSUID | CB_NODEV, &mnt);
	if (r < 0)
		return cb_err_set(err, r, STEP, "Name a folder that holds an unpacked image, by its real path.",
				  "root.path %s: %s", path, strerror(-r));
	*ret_mnt = cb_fd_take(&mnt);
	return 0;
}

/* The image is mounted for a moment, since parts can only be taken of what is. */
static int stage_image(struct cb_jail *jail, int *ret_fd, struct cb_err *err)
{
	CB_AUTO_FD mnt = cb_fd_take(&jail->root_fd);
	CB_AUTO_FD place = -1;
	int r = mnt < 0 ? cb_image_open(jail, &mnt, err) : 0;

	if (r < 0)
		return r;
	r = cb_place_open(IMAGE, true, &place);
	if (r == 0)
		r = cb_mnt_attach(mnt, place);
	if (r < 0)
		return cb_mnt_fail(err, r, STEP, "mounting the image");
	*ret_fd = cb_fd_take(&mnt);
	return 0;
}

static int show_all(int (*show)(int from, const char *path, uint64_t attrs), int from, const struct cb_shown *list,
		    size_t n, struct cb_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int r = show(from, list[i].path, CB_RO | CB_NOSUID | CB_NODEV);

		if (r < 0)
			return cb_mnt_fail(err, r, STEP, list[i].path);
	}
	return 0;
}

static int show_system(struct cb_jail *jail, struct cb_err *err)
{
	bool image = jail->spec->root_path != NULL;
	CB_AUTO_FD from = -1;
	int r = 0;

	if (image)
		r = stage_image(jail, &from, err);
	else
		from = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r < 0)
		return r;
	if (from < 0)
		return cb_mnt_fail(err, -errno, STEP, "the host's root");
	r = show_all(image ? show_image : show_host, from, cb_root_system, cb_root_system_count, err);
	if (r == 0)
		r = show_all(image ? show_image : show_host, from, cb_root_etc, cb_root_etc_count, err);
	if (image && (cb_mnt_detach(IMAGE) < 0 || syscall(SYS_unlinkat, AT_FDCWD, IMAGE, AT_REMOVEDIR) < 0))
		return r < 0 ? r : cb_mnt_fail(err, -errno, STEP, "taking the image away");
	return r;
}

/* With network full the host's names and resolvers are wanted: copied, since the host replaces these files by renaming.
 */
static int copy_host_file(struct cb_jail *jail, const char *path, const char *more)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	CB_AUTO_BUF text = CB_BUF_INIT(MAX_HOSTS + 256);
	char *data = NULL, note[128];
	size_t len = 0;
	int r = fd < 0 ? 0 : cb_fd_read_all(fd, MAX_HOSTS, &data, &len);

	if (r == CB_E_TOO_BIG) { /* a list of names that are to be blocked, perhaps */
		snprintf(note, sizeof(note), "the host's %s is larger than 1 MiB: cells see nothing of it", path);
		cb_jail_add_note(jail, note);
		r = 0;
	}
	if (r == 0 && len > 0)
		r = cb_buf_append(&text, data, len);
	free(data);
	if (r == 0)
		r = cb_buf_printf(&text, "\n%s", more);
	return r < 0 ? r : cb_place_write(path, (const char *)text.data, text.len);
}

static int make_network_files(struct cb_jail *jail)
{
	const struct cb_jail_spec *spec = jail->spec;
	char hosts[512], name[256];
	bool full = spec->network == CB_NETWORK_FULL;
	int r;

	snprintf(name, sizeof(name), "%s\n", spec->hostname);
	r = cb_place_write("etc/hostname", name, strlen(name));
	if (r < 0)
		return r;
	snprintf(hosts, sizeof(hosts), "127.0.0.1 localhost %s\n%s", spec->hostname,
		 full ? "" : "::1 localhost ip6-localhost ip6-loopback\n");
	if (full) {
		r = copy_host_file(jail, "/etc/hosts", hosts);
		return r < 0 ? r : copy_host_file(jail, "/etc/resolv.conf", "");
	}
	r = cb_place_write("etc/hosts", hosts, strlen(hosts));
	return r < 0 ? r : cb_place_write("etc/resolv.conf", "", 0);
}

/* glibc, OpenBLAS and others count processors here; all else of /sys is the host's business. */
static int make_cpu_files(void)
{
	static const char *const names[] = { "online", "possible", "present" };
	CB_AUTO_FD place = -1;
	int r = cb_place_open("sys/devices/system/cpu", true, &place);

	for (size_t i = 0; r == 0 && i < CB_COUNT(names); i++) {
		char path[64], text[256];
		CB_AUTO_FD fd = -1;
		ssize_t n;

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/%s", names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : read(fd, text, sizeof(text));
		if (n > 0)
			r = cb_place_write(path, text, (size_t)n);
	}
	return r;
}

static int make_skeleton(const struct cb_jail_spec *spec, struct cb_err *err)
{
	for (size_t i = 0; i < CB_COUNT(root_folders); i++)
		if (mkdir(root_folders[i], 0755) < 0)
			return cb_mnt_fail(err, -errno, STEP, root_folders[i]);
	for (size_t i = 0; i < CB_COUNT(root_links); i++) {
		if (strcmp(root_links[i].path, "var/tmp") == 0 && cb_parents_need_var_tmp(spec))
			continue;
		if (symlink(root_links[i].target, root_links[i].path) < 0)
			return cb_mnt_fail(err, -errno, STEP, root_links[i].path);
	}
	for (size_t i = 0; i < cb_root_made_count; i++) {
		const struct cb_made *m = &cb_root_made[i];
		const char *text = spec->network == CB_NETWORK_FULL && m->text_full != NULL ? m->text_full : m->text;
		int r = cb_place_write(m->path, text, strlen(text));

		if (r < 0)
			return cb_mnt_fail(err, r, STEP, m->path);
	}
	return 0;
}

int cb_step_new_root(struct cb_jail *jail, struct cb_err *err)
{
	CB_AUTO_FD root = -1;
	int r = cb_mnt_tmpfs(CB_ROOT_BYTES, CB_ROOT_INODES, "0755", CB_NOSUID | CB_NODEV, &root);

	/* Attached over "/", so that no folder of the host is needed for it: lookups of "/" still start below it. */
	if (r == 0)
		r = cb_mnt_attach_at(root, "/");
	if (r == 0 && fchdir(root) < 0)
		r = -errno;
	if (r == 0)
		r = cb_own_add(root);
	if (r < 0)
		return cb_mnt_fail(err, r, STEP, "a tmpfs for the root");
	umask(022);
	r = make_skeleton(jail->spec, err);
	if (r == 0)
		r = show_system(jail, err);
	if (r < 0)
		return r;
	r = make_network_files(jail);
	if (r < 0)
		return cb_mnt_fail(err, r, STEP, "network files of /etc");
	r = make_cpu_files();
	return r < 0 ? cb_mnt_fail(err, r, STEP, "/sys/devices/system/cpu") : 0;
}

int cb_step_pivot(struct cb_jail *jail, struct cb_err *err)
{
	struct stat root, up;
	int r = cb_overlay_unstage();

	if (r < 0)
		return cb_mnt_fail(err, r, "pivot", "taking an overlay's layers away");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return cb_mnt_fail(err, -errno, "pivot", "pivot_root");
	/* The old root now lies over the new one at ".". */
	if (cb_mnt_detach(".") < 0)
		return cb_mnt_fail(err, -errno, "pivot", "detaching the old root");
	if (chdir("/") < 0)
		return cb_mnt_fail(err, -errno, "pivot", "chdir to the new root");
	r = cb_mnt_close("/");
	if (r == 0)
		r = cb_mnt_close("/dev");
	if (r == 0 && jail != NULL)
		r = cb_parents_close(jail->spec);
	if (r < 0)
		return cb_mnt_fail(err, r, "pivot", "making the root read-only");
	if (stat("/", &root) < 0 || stat("/..", &up) < 0 || root.st_dev != up.st_dev || root.st_ino != up.st_ino)
		return cb_mnt_fail(err, CB_E_DENIED, "pivot", "the folder above the new root is not the new root");
	return 0;
}
