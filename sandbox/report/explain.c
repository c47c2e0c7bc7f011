/* `cellblock explain`: the jail that a description results in, step by step, with the reason for each.
 *
 * Trust domain: outside. Runs nothing: it is written from the description and from the same tables that build the jail,
 * and of the folders above the workspace from what they hold. The values of variables are not printed, since they may
 * be secrets. Text goes to terminals, so control characters are shown as \xNN.
 */
#include "../cgroup/cgroup.h"
#include "../init/init.h"
#include "../init/parts.h"
#include "../judge/judge.h"
#include "../notifier/calls.h"
#include "../root/binds.h"
#include "../root/rootfs.h"
#include "../shared/mounts.h"
#include "../walls/landlock.h"
#include "../walls/seccomp_rules.h"
#include "../without_namespaces/without_namespaces.h"
#include "report.h"

#include <cellblock/buffer.h>
#include <cellblock/json_write.h>
#include <cellblock/size_text.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_OUTPUT (8u << 20)
#define MAX_CALLS 16384u

#define WIDTH 112u
#define NAMES_WIDTH 22u
#define MAX_NAMES 65536u

/* All output is sections of rows of three texts; `columns` are their JSON keys. As text, rows that say the same of
 * several things become one. */
struct out {
	struct cb_buf text;
	bool json, first_section;
	struct cb_json writer; /* json: into `text` */
	const char *const *columns;
	struct cb_buf names; /* text: of the row that is not written yet, and what it says */
	char what[PATH_MAX + 256], why[1536];
	bool why_first;
	size_t column;
	int error;
};

static void note(struct out *o, int r)
{
	if (r < 0 && o->error == 0)
		o->error = r;
}

static void new_line(struct out *o, size_t indent)
{
	note(o, cb_buf_printf(&o->text, "\n%*s", (int)indent, ""));
	o->column = indent;
}

/* Words, broken into lines. A terminal would obey control characters. */
static void put_words(struct out *o, const char *text, size_t indent)
{
	const char *s = cb_shown(text);

	while (*s != '\0') {
		size_t n = strcspn(s, " ");

		if (o->column > indent && o->column + n + 1 > WIDTH)
			new_line(o, indent);
		else if (o->column > indent && n > 0)
			note(o, cb_buf_append_str(&o->text, " "));
		note(o, cb_buf_append(&o->text, s, n));
		o->column += n + 1;
		s += n + strspn(s + n, " ");
	}
}

static void flush_row(struct out *o)
{
	size_t indent = 2 + NAMES_WIDTH + 1, length = o->names.len;
	const char *texts[2] = { o->why_first ? o->why : o->what, o->why_first ? o->what : o->why };

	if (length == 0)
		return;
	note(o, cb_buf_append(&o->names, "", 1));
	note(o, cb_buf_append_str(&o->text, "  "));
	o->column = 2;
	put_words(o, o->names.data != NULL ? (const char *)o->names.data : "", 2);
	if (texts[0][0] != '\0' || texts[1][0] != '\0') {
		if (length > NAMES_WIDTH)
			new_line(o, indent);
		else
			note(o, cb_buf_printf(&o->text, "%*s", (int)(NAMES_WIDTH + 1 - length), ""));
		o->column = indent;
		put_words(o, texts[0], indent);
		if (texts[0][0] != '\0' && texts[1][0] != '\0' && o->why_first)
			new_line(o, indent);
		else if (texts[0][0] != '\0' && texts[1][0] != '\0')
			put_words(o, "–", indent);
		put_words(o, texts[1], indent);
	}
	note(o, cb_buf_append_str(&o->text, "\n"));
	cb_buf_release(&o->names);
	o->names = (struct cb_buf)CB_BUF_INIT(MAX_NAMES);
}

static void section(struct out *o, const char *key, const char *title, const char *const columns[3])
{
	o->columns = columns;
	if (o->json) {
		if (!o->first_section)
			cb_json_end(&o->writer);
		cb_json_array(&o->writer, key);
	} else {
		flush_row(o);
		note(o, cb_buf_printf(&o->text, "%s%s\n", o->first_section ? "" : "\n", title));
	}
	o->first_section = false;
}

static void row_as_text(struct out *o, const char *a, const char *b, const char *c)
{
	bool same = o->names.len > 0 && strcmp(o->what, b) == 0 && strcmp(o->why, c) == 0;

	if (!same)
		flush_row(o);
	note(o, cb_buf_printf(&o->names, "%s%s", same ? ", " : "", a));
	snprintf(o->what, sizeof(o->what), "%s", b);
	snprintf(o->why, sizeof(o->why), "%s", c);
}

static void row(struct out *o, const char *a, const char *b, const char *c)
{
	const char *const texts[3] = { a, b, c };

	if (!o->json) {
		row_as_text(o, a, b != NULL ? b : "", c != NULL ? c : "");
		return;
	}
	cb_json_object(&o->writer, NULL);
	for (int i = 0; i < 3; i++)
		if (o->columns[i] != NULL && texts[i] != NULL)
			cb_json_put(&o->writer, o->columns[i], texts[i]);
	cb_json_end(&o->writer);
}

static void explain_command(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const columns[3] = { "argument", NULL, NULL };
	static const char *const names[3] = { "name", NULL, NULL };

	section(o, "command", "Command", columns);
	for (size_t i = 0; i < spec->argv.count; i++)
		row(o, spec->argv.items[i], NULL, NULL);
	section(o, "environment", "Environment: these variables and no others", names);
	for (size_t i = 0; i < spec->env.count; i++) {
		char name[256];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(spec->env.items[i], "="), spec->env.items[i]);
		row(o, name, NULL, NULL);
	}
}

static void explain_steps(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const columns[3] = { "step", NULL, "reason" };

	section(o, "steps", "Steps, in order", columns);
	row(o, "cgroup", NULL,
	    "memory, processes and CPU of the whole jail are bounded, where the host gives a control group");
	row(o, "namespaces", NULL,
	    spec->network == CB_NETWORK_FULL ? "own user, mount, pid, ipc, uts and cgroup namespaces; the host's "
					       "network, since network.mode is \"full\""
					     : "own user, mount, pid, network, ipc, uts and cgroup namespaces: nothing "
					       "outside has a name inside");
	row(o, "user", NULL,
	    "one uid and gid, 1000: outside the user's own or, started by root, one that no account uses; never 0");
	for (size_t i = 0; i < cb_jail_steps_count; i++) {
		const char *reason = cb_jail_steps[i].reason;

		if (cb_jail_steps[i].run == cb_step_landlock && cb_landlock_version() == 0)
			reason = CB_LANDLOCK_ABSENT;
		else if (cb_jail_steps[i].run == cb_step_loopback && spec->network == CB_NETWORK_FULL)
			reason = "nothing to do: all interfaces are the host's, and 127.0.0.1 is the host itself, "
				 "since network.mode is \"full\"";
		row(o, cb_jail_steps[i].name, NULL, reason);
	}
	row(o, "fork", NULL, "pid 1 stays ours: it reaps, forwards signals and reports; the guest is its child");
	row(o, "descriptors", NULL,
	    "nothing is open but stdin (/dev/null), stdout, stderr, the wire, the log, and three sockets: for "
	    "messages beside the cell, for twins, and the registry of those, shared with pid 1; for `cellblock run` "
	    "stdin, stdout and stderr alone, the caller's");
	row(o, "seccomp", NULL,
	    "only the system calls below; last, so that building the jail does not need to be allowed");
}

/* The other table of steps, where the description accepts a jail without namespaces. */
static void explain_weaker(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const columns[3] = { "step", NULL, "reason" };

	section(o, "weaker_steps", "Where the host refuses namespaces, since isolation.minimum accepts that", columns);
	row(o, "paths", NULL, "they are the host's; home and /tmp are a folder below /tmp, gone at the end");
	for (size_t i = 0; i < cb_without_namespaces_steps_count; i++)
		row(o, cb_without_namespaces_steps[i].name, NULL, cb_without_namespaces_steps[i].reason);
	row(o, "landlock", NULL,
	    spec->minimum == CB_LEVEL_NONE ? "if the host has it: files are reached only where the policy says so"
					   : "files are reached only where the policy says so; without it, no jail");
	row(o, "sockets", NULL,
	    spec->network == CB_NETWORK_FULL ? "none that are local: services of this machine would listen"
					     : "none can be made");
	row(o, "seccomp", NULL, "only the system calls below");
	row(o, "transactions", NULL, "none: no copy of the session is kept, so a crash costs all variables");
}

/* For people in one row, with one reason for all. */
static void put_shown(struct out *o, const struct cb_shown *list, size_t n, const char *reason)
{
	for (size_t i = 0; i < n; i++) {
		char path[128];

		snprintf(path, sizeof(path), "/%s", list[i].path);
		row(o, path, "host's, read-only, if there", o->json ? list[i].reason : reason);
	}
}

static void put_tmpfs(struct out *o, const char *path, uint64_t bytes, uint64_t inodes, const char *reason)
{
	char how[128], text[CB_SIZE_TEXT];

	snprintf(how, sizeof(how), "empty, writable, at most %s and %" PRIu64 " files", cb_size_text(bytes, text),
		 inodes);
	row(o, path, how, reason);
}

static void put_joined(struct out *o, const char *prefix, const char *const *names, size_t n, const char *how,
		       const char *reason)
{
	for (size_t i = 0; i < n; i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s%s", prefix, names[i]);
		row(o, path, how, reason);
	}
}

static void explain_binds(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const how_bound[] = { "read-only", "writable",
						 "under a limited layer of changes, which is dropped at the end" };
	char how[PATH_MAX + 128];

	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *b = &spec->binds[i];

		snprintf(how, sizeof(how), "host's %s, %s%s", b->source, how_bound[b->mode],
			 b->optional ? ", if there" : "");
		row(o, b->target, how, b->reason);
	}
	for (size_t i = 0; i < spec->home_expose.count; i++) {
		const char *rel = cb_expose_relative(spec, spec->home_expose.items[i]);
		char path[PATH_MAX];

		if (rel == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", CB_JAIL_HOME, rel);
		row(o, path, "host's, read-only, if there", "home.expose");
	}
}

struct begun {
	struct out *o;
	const char *target;
};

static void put_begun(void *arg, const char *rest)
{
	const struct begun *b = arg;
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", b->target, rest);
	row(b->o, path, "read-only",
	    "workspace.protect: with the names of the folders above, programs outside would execute it");
}

/* Names above the workspace: of itself, and of what begins with them. */
static void explain_above(struct out *o, const struct cb_jail_spec *spec)
{
	struct begun b = { o, spec->workspace_target };
	struct cb_err refused = { 0 };
	char why[sizeof(refused.text) + sizeof(refused.cure) + 4];

	if (cb_judge_place(spec, &refused) < 0) {
		snprintf(why, sizeof(why), "%s. %s", refused.text, refused.cure);
		row(o, spec->workspace_source, "refused: no jail starts", why);
	}
	cb_judge_begun(spec, put_begun, &b);
}

static void explain_workspace(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const modes[] = { "writable, each write judged by its name", "read-only", "an empty tmpfs",
					     "under a limited layer of changes, which is dropped at the end" };
	char how[PATH_MAX + 64];

	if (spec->workspace_target == NULL)
		return;
	snprintf(how, sizeof(how), "%s%s%s", spec->workspace_source != NULL ? "host's " : "",
		 spec->workspace_source != NULL ? spec->workspace_source : "",
		 spec->workspace_source != NULL ? ", " : "");
	snprintf(how + strlen(how), sizeof(how) - strlen(how), "%s", modes[spec->workspace_mode]);
	row(o, spec->workspace_target, how, spec->workspace_note != NULL ? spec->workspace_note : "the workspace");
	if (spec->workspace_mode != CB_WORKSPACE_RW && spec->workspace_mode != CB_WORKSPACE_OVERLAY)
		return;
	put_joined(o, o->json ? "workspace: …/" : "…/", (const char *const *)spec->protect.items, spec->protect.count,
		   "read-only", "workspace.protect: programs outside would execute it");
	explain_above(o, spec);
	for (size_t i = 0; i < spec->protect_paths.count; i++)
		if (spec->workspace_source != NULL &&
		    cb_path_within(spec->protect_paths.items[i], spec->workspace_source))
			row(o, spec->protect_paths.items[i], "read-only", "the kernel's own, inside the workspace");
}

static void explain_mounts(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const columns[3] = { "target", "content", "reason" };

	section(o, "mounts", "Files: what is not here does not exist inside", columns);
	row(o, "/", "empty folders and links, read-only", "the root of the jail");
	if (spec->root_path != NULL)
		row(o, "/usr and friends", spec->root_path, "of this image, not of the host: root.path");
	put_shown(o, cb_root_system, cb_root_system_count, "programs and libraries");
	put_shown(o, cb_root_etc, cb_root_etc_count, "settings that programs read, and no others of /etc");
	for (size_t i = 0; i < cb_root_made_count; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/%s", cb_root_made[i].path);
		row(o, path, "made for the jail", "shows no account or service of the host");
	}
	row(o, "/etc/hosts, /etc/hostname, /etc/resolv.conf",
	    spec->network == CB_NETWORK_FULL ? "hosts and resolvers copied from the host" : "made for the jail",
	    spec->network == CB_NETWORK_FULL ? "network.mode is \"full\"" : "names resolve at once or not at all");
	row(o, "/sys/devices/system/cpu", "copies of online, possible, present", "libraries count processors there");
	for (size_t i = 0; i < cb_dev_nodes_count; i++)
		put_joined(o, "/dev/", &cb_dev_nodes[i].name, 1, "host's device",
			   "harmless, and needed by most programs");
	row(o, "/dev/pts", "new", "terminals for shell commands, of the jail's own");
	row(o, "/proc", "new", "the jail's own processes only");
	put_joined(o, "/proc/", cb_proc_read_only, cb_proc_read_only_count, "read-only",
		   "settings of the host's kernel");
	put_joined(o, "/proc/", cb_proc_masked, cb_proc_masked_count, "masked", "speaks of the host");
	put_tmpfs(o, "/tmp", spec->limit_tmp, spec->limit_inodes, "temporary files");
	put_tmpfs(o, CB_JAIL_HOME, spec->limit_tmp, spec->limit_inodes, "a home without the user's files");
	put_tmpfs(o, "/dev/shm", spec->limit_shm, spec->limit_inodes, "shared memory of multiprocessing");
	explain_binds(o, spec);
	explain_workspace(o, spec);
}

static void put_limit(struct out *o, const char *name, uint64_t value, bool bytes, const char *reason)
{
	char text[CB_SIZE_TEXT] = "none";

	if (value > 0 && bytes && !o->json)
		(void)cb_size_text(value, text);
	else if (value > 0)
		snprintf(text, sizeof(text), "%" PRIu64, value);
	row(o, name, text, reason);
}

static void explain_limits(struct out *o, const struct cb_jail_spec *spec)
{
	static const char *const columns[3] = { "limit", "value", "reason" };

	section(o, "limits", "Limits", columns);
	put_limit(o, "limits.memory", spec->limit_memory, true,
		  spec->limit_memory_note != NULL
			  ? spec->limit_memory_note
			  : "the whole jail: by a control group where there is one, else by a watchdog");
	if (spec->limit_cpu > 0) {
		char cores[32];

		snprintf(cores, sizeof(cores), "%g", (double)spec->limit_cpu / CB_CGROUP_PERIOD_US);
		row(o, "limits.cpu", cores,
		    "cores for the whole jail, by a control group; without one not held, as the banner says");
	}
	put_limit(o, "RLIMIT_DATA", spec->limit_data, true,
		  "limits.memory: bytes of one process's memory: a MemoryError instead of a dead session");
	put_limit(o, "RLIMIT_NPROC", spec->limit_pids, false,
		  "limits.pids: processes and threads of the jail; by the control group too");
	put_limit(o, "RLIMIT_NOFILE", spec->limit_open_files, false, "limits.open_files: open files of one process");
	put_limit(o, "RLIMIT_FSIZE", spec->limit_file_size, true, "limits.file_size: bytes of one file");
	row(o, "RLIMIT_CORE", "1", "no core dump, nor one to the host's handler");
}

static void join_calls(struct cb_buf *buf, size_t from, size_t to, enum cb_seccomp_kind kind, const char *label)
{
	const char *last = "";
	bool any = false;

	for (size_t i = from; i < to; i++) {
		const struct cb_seccomp_rule *rule = &cb_seccomp_rules[i];

		if (rule->kind != kind || strcmp(rule->name, last) == 0 || (rule->nr < 0 && kind != CB_SECCOMP_ABSENT))
			continue;
		(void)cb_buf_printf(buf, "%s%s", any ? " " : buf->len > 0 ? "; " : "", any ? "" : label);
		(void)cb_buf_append_str(buf, rule->name);
		last = rule->name;
		any = true;
	}
}

/* Rules of a call stand together. */
static size_t count_allowed(void)
{
	const char *last = "";
	size_t n = 0;

	for (size_t i = 0; i < cb_seccomp_rules_count; i++) {
		const struct cb_seccomp_rule *rule = &cb_seccomp_rules[i];
		bool allows = rule->kind == CB_SECCOMP_ALLOW || rule->kind == CB_SECCOMP_WHEN;

		if (!allows || rule->nr < 0 || strcmp(rule->name, last) == 0)
			continue;
		last = rule->name;
		n++;
	}
	return n;
}

/* Of the allowed ones. */
static void explain_served(struct out *o)
{
	CB_AUTO_BUF names = CB_BUF_INIT(MAX_CALLS);

	note(o, cb_buf_append_str(&names, "by name:"));
	for (size_t i = 0; i < cb_notify_calls_count; i++)
		note(o, cb_buf_printf(&names, " %s", cb_notify_calls[i].name));
	note(o, cb_buf_append(&names, "", 1));
	row(o, "served", names.data != NULL ? (const char *)names.data : "",
	    "of the above, what would write into the workspace or reach a named socket: done by the notifier, if the "
	    "resolved name may be written");
}

static void explain_calls(struct out *o, bool notifier)
{
	static const char *const columns[3] = { "group", "calls", "reason" };
	char title[96];

	snprintf(title, sizeof(title), "System calls: %zu are allowed; what is not here is answered with ENOSYS",
		 count_allowed());
	section(o, "syscalls", title, columns);
	o->why_first = true;
	for (size_t i = 0, next; i < cb_seccomp_rules_count; i = next) {
		CB_AUTO_BUF calls = CB_BUF_INIT(MAX_CALLS);

		for (next = i + 1; next < cb_seccomp_rules_count && cb_seccomp_rules[next].kind != CB_SECCOMP_GROUP;
		     next++)
			;
		join_calls(&calls, i, next, CB_SECCOMP_ALLOW, "allowed: ");
		join_calls(&calls, i, next, CB_SECCOMP_WHEN, "by their arguments: ");
		join_calls(&calls, i, next, CB_SECCOMP_REFUSE, "refused: ");
		join_calls(&calls, i, next, CB_SECCOMP_ABSENT, "ENOSYS: ");
		note(o, cb_buf_append(&calls, "", 1));
		row(o, cb_seccomp_rules[i].name, calls.data != NULL ? (const char *)calls.data : "",
		    cb_seccomp_rules[i].reason);
	}
	if (notifier)
		explain_served(o);
}

static int explain(const struct cb_jail_spec *spec, bool json)
{
	struct out o = {
		.text = CB_BUF_INIT(MAX_OUTPUT), .names = CB_BUF_INIT(MAX_NAMES), .json = json, .first_section = true
	};

	if (json)
		o.writer = cb_json_begin(&o.text);
	explain_command(&o, spec);
	explain_steps(&o, spec);
	if (spec->minimum < CB_LEVEL_NO_CGROUP)
		explain_weaker(&o, spec);
	explain_mounts(&o, spec);
	explain_limits(&o, spec);
	explain_calls(&o, spec->notifier);
	flush_row(&o);
	if (json) {
		note(&o, cb_json_done(&o.writer));
		note(&o, cb_buf_append_str(&o.text, "\n"));
	}
	if (o.error == 0)
		o.error = fwrite(o.text.data, 1, o.text.len, stdout) == o.text.len ? 0 : -EIO;
	cb_buf_release(&o.text);
	cb_buf_release(&o.names);
	return o.error;
}

int cb_explain_main(int spec_fd, bool json)
{
	struct cb_jail_spec spec = { 0 };
	struct cb_err err = { 0 };
	int r = cb_jail_spec_from_fd(spec_fd, &spec, &err);

	if (r < 0)
		fprintf(stderr, "cellblock explain: %s\n", err.text);
	else
		r = explain(&spec, json);
	cb_jail_spec_release(&spec);
	return r < 0 ? 1 : 0;
}
