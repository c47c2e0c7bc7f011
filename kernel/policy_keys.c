/* All policy keys. See policy_keys.h for what a row means, docs/policy.md for the reader's view of it.
 *
 * Trust domain: supervisor, at start. Invariants: each member of struct cb_policy that a user can set has exactly one
 * row; defaults pass through the same setter as a user's values, so a default can't be one that a user could not write.
 */
#include "policy_keys.h"

#include <stddef.h>

#define KEY(key_name, key_type, member) .name = key_name, .type = key_type, .offset = offsetof(struct cb_policy, member)
#define G (1024.0 * 1024 * 1024)

static const struct cb_key_word workspace_modes[] = {
	{ "tmpfs", CB_WS_TMPFS }, { "ro", CB_WS_RO }, { "overlay", CB_WS_OVERLAY }, { "rw", CB_WS_RW }, { NULL, 0 },
};
static const struct cb_key_word workspace_targets[] = { { "same", false }, { "/workspace", true }, { NULL, 0 } };
static const struct cb_key_word packages_modes[] = { { "ro", CB_PACKAGES_RO },
						     { "session", CB_PACKAGES_SESSION },
						     { NULL, 0 } };
static const struct cb_key_word network_modes[] = {
	{ "none", CB_NETWORK_NONE },
	{ "allow", -1 },
	{ "full", CB_NETWORK_FULL },
	{ NULL, 0 },
};
static const struct cb_key_word switch_modes[] = {
	{ "off", CB_MODE_OFF }, { "auto", -1 }, { "always", -1 }, { NULL, 0 }
};
static const struct cb_key_word transactions_modes[] = {
	{ "off", CB_MODE_OFF }, { "auto", CB_MODE_AUTO }, { "always", CB_MODE_ALWAYS }, { NULL, 0 }
};
static const struct cb_key_word levels[] = {
	{ "full", CB_LEVEL_FULL },
	{ "no-cgroup", CB_LEVEL_NO_CGROUP },
	{ "container", CB_LEVEL_CONTAINER },
	{ "none", CB_LEVEL_NONE },
	{ NULL, 0 },
};

#define PROTECT_DEFAULT                                                                                                \
	"[\".git/hooks\", \".git/config\", \".vscode\", \".idea\", \".envrc\", \".devcontainer\", \".husky\", "        \
	"\".pre-commit-config.yaml\", \"pyvenv.cfg\", \"conda-meta\"]"
#define EXPOSE_DEFAULT                                                                                                 \
	"[\".ipython/profile_default/ipython_config.py\", \".ipython/profile_default/ipython_kernel_config.py\", "     \
	"\".ipython/profile_default/startup\", \".config/matplotlib/matplotlibrc\", "                                  \
	"\".config/matplotlib/stylelib\"]"

const struct cb_policy_key cb_policy_keys[] = {
	{ KEY("timeout.cell", CB_KEY_SECONDS, timeout_cell), .notebook = "0", .agent = "120", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT, .meaning = "wall seconds per cell; 0 = no limit" },
	{ KEY("timeout.cpu", CB_KEY_SECONDS, timeout_cpu), .notebook = "0", .agent = "60", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT, .meaning = "CPU seconds per cell; 0 = no limit" },
	{ KEY("timeout.wait", CB_KEY_SECONDS, timeout_wait), .notebook = "0", .agent = "600", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT,
	  .meaning = "seconds that a wait for input may last while the cell's clock stands; 0 = any" },
	{ KEY("timeout.grace", CB_KEY_SECONDS, timeout_grace), .notebook = "5", .agent = "2", .maximum = 3600,
	  .ceiling = CB_CEILING_SMALLER, .meaning = "seconds between the soft stop and the hard one after a limit" },
	{ KEY("timeout.interrupt", CB_KEY_SECONDS, timeout_interrupt), .notebook = "0", .agent = "2", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT,
	  .meaning = "seconds to the hard stop after an interrupt that Python has not delivered; 0 = on a second one" },
	{ KEY("timeout.idle", CB_KEY_SECONDS, timeout_idle), .notebook = "0", .agent = "900", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT,
	  .meaning = "seconds without requests and subscribers after which the jail ends; 0 = never" },
	{ KEY("limits.memory", CB_KEY_SHARE, limit_memory), .notebook = "\"75%\"", .agent = "\"512M\"",
	  .minimum = 32 << 20, .maximum = 1e18, .ceiling = CB_CEILING_SMALLER,
	  .meaning = "memory of the whole jail; a process that asks for more gets a MemoryError where that can be" },
	{ KEY("limits.cpu", CB_KEY_CORES, limit_cpu), .notebook = "0", .agent = "0.5", .minimum = 0.01, .maximum = 1e6,
	  .zero_is_none = true, .ceiling = CB_CEILING_LIMIT, .meaning = "cores, held by cgroups; 0 = all" },
	{ KEY("limits.pids", CB_KEY_COUNT, limit_pids), .notebook = "4096", .agent = "100", .minimum = 4,
	  .maximum = 4194304, .ceiling = CB_CEILING_SMALLER, .meaning = "processes and threads" },
	{ KEY("limits.open_files", CB_KEY_COUNT, limit_open_files), .notebook = "65536", .agent = "1024", .minimum = 32,
	  .maximum = 1048576, .ceiling = CB_CEILING_SMALLER, .meaning = "open files of one process" },
	{ KEY("limits.file_size", CB_KEY_SIZE, limit_file_size), .notebook = "0", .agent = "\"256M\"", .minimum = 4096,
	  .maximum = 1e18, .zero_is_none = true, .ceiling = CB_CEILING_LIMIT,
	  .meaning = "bytes of one file; 0 = no limit" },
	{ KEY("limits.tmp", CB_KEY_SHARE, limit_tmp), .notebook = "\"1G\"", .agent = "\"64M\"", .minimum = 65536,
	  .maximum = 1e18, .ceiling = CB_CEILING_SMALLER, .meaning = "bytes of /tmp and of the home, each" },
	{ KEY("limits.shm", CB_KEY_SHARE, limit_shm), .notebook = "\"50%\"", .agent = "\"64M\"", .minimum = 65536,
	  .maximum = 1e18, .ceiling = CB_CEILING_SMALLER, .meaning = "bytes of /dev/shm" },
	{ KEY("limits.inodes", CB_KEY_COUNT, limit_inodes), .notebook = "1000000", .agent = "20000", .minimum = 256,
	  .maximum = 1e12, .ceiling = CB_CEILING_SMALLER, .meaning = "files of each tmpfs" },
	{ KEY("limits.output", CB_KEY_SIZE, limit_output), .notebook = "\"64M\"", .agent = "\"1M\"", .minimum = 1024,
	  .maximum = 1e15, .zero_is_none = true, .ceiling = CB_CEILING_LIMIT,
	  .meaning = "bytes of output per cell; 0 = no limit" },
	{ KEY("limits.message", CB_KEY_SIZE, limit_message), .notebook = "\"64M\"", .agent = "\"16M\"",
	  .minimum = 65536, .maximum = G, .ceiling = CB_CEILING_SMALLER, .meaning = "bytes of one message" },
	{ KEY("workspace.path", CB_KEY_FOLDER, workspace_path), .notebook = "\".\"",
	  .meaning = "the one writable folder" },
	{ KEY("workspace.mode", CB_KEY_WORD, workspace_mode), .notebook = "\"rw\"", .agent = "\"overlay\"",
	  .ceiling = CB_CEILING_STRICTER, .words = workspace_modes,
	  .meaning = "rw: bound; ro: bound read-only; overlay: changes dropped at the end; tmpfs: empty" },
	{ KEY("workspace.size", CB_KEY_SIZE, workspace_size), .notebook = "0", .agent = "\"256M\"", .minimum = 65536,
	  .maximum = 1e18, .zero_is_none = true, .ceiling = CB_CEILING_LIMIT,
	  .meaning = "bytes that cells may add; 0 = no limit, with overlay and tmpfs as limits.tmp" },
	{ KEY("workspace.target", CB_KEY_EITHER, workspace_target_neutral), .notebook = "\"same\"",
	  .agent = "\"/workspace\"", .words = workspace_targets, .meaning = "where the workspace appears inside" },
	{ KEY("workspace.protect", CB_KEY_LIST, workspace_protect), .notebook = PROTECT_DEFAULT,
	  .ceiling = CB_CEILING_UNION, .item = CB_ITEM_RELATIVE,
	  .meaning = "entries that programs outside would execute: read-only inside" },
	{ KEY("mounts", CB_KEY_MOUNTS, mounts), .notebook = "[]", .ceiling = CB_CEILING_SUBSET,
	  .meaning = "more folders: {\"source\", \"target\", \"mode\": \"ro\"|\"rw\"}" },
	{ KEY("root.path", CB_KEY_FOLDER, root_path), .notebook = "\"host\"",
	  .meaning = "the system inside: this host's, or a folder that holds an unpacked image" },
	{ KEY("home.expose", CB_KEY_LIST, home_expose), .notebook = EXPOSE_DEFAULT, .agent = "[]",
	  .ceiling = CB_CEILING_SUBSET, .item = CB_ITEM_RELATIVE,
	  .meaning = "paths below the home, read-only in an otherwise empty home" },
	{ KEY("packages.mode", CB_KEY_WORD, packages_mode), .notebook = "\"session\"", .ceiling = CB_CEILING_STRICTER,
	  .words = packages_modes, .meaning = "what %pip install may do" },
	{ KEY("network.mode", CB_KEY_WORD, network_mode), .notebook = "\"none\"", .ceiling = CB_CEILING_STRICTER,
	  .words = network_modes, .meaning = "none, a list of hosts, or the host's network" },
	{ KEY("network.allow", CB_KEY_LIST, network_allow), .notebook = "[]", .until_built = "[]",
	  .ceiling = CB_CEILING_SUBSET, .meaning = "host:port, *.suffix" },
	{ KEY("env.set", CB_KEY_MAP, env_set), .notebook = "{}", .meaning = "variables set inside" },
	{ KEY("env.pass", CB_KEY_LIST, env_pass), .notebook = "[\"LANG\", \"LC_*\", \"TZ\"]", .agent = "[]",
	  .ceiling = CB_CEILING_SUBSET, .item = CB_ITEM_VARIABLE,
	  .meaning = "variables taken over from outside; `*` at the end stands for any rest" },
	{ KEY("imports.allow", CB_KEY_LIST, imports_allow), .notebook = "[]", .until_built = "[]",
	  .meaning = "names that a cell may import; [] = any" },
	{ KEY("transactions.mode", CB_KEY_WORD, transactions_mode), .notebook = "\"auto\"", .words = transactions_modes,
	  .meaning = "state kept when a cell fails hard" },
	{ KEY("transactions.keep", CB_KEY_COUNT, transactions_keep), .notebook = "1", .maximum = 50,
	  .meaning = "cells that can be undone" },
	{ KEY("transactions.names", CB_KEY_COUNT, transactions_names), .notebook = "16",
	  .maximum = 200, .meaning = "named checkpoints" },
	{ KEY("warm.mode", CB_KEY_WORD, warm_mode), .notebook = "\"auto\"", .until_built = "\"off\"",
	  .words = switch_modes, .meaning = "use of a zygote" },
	{ KEY("warm.preload", CB_KEY_LIST, warm_preload), .notebook = "[]", .agent = "[\"numpy\", \"pandas\"]",
	  .until_built = "[]", .meaning = "modules loaded in it" },
	{ KEY("isolation.minimum", CB_KEY_WORD, isolation_minimum), .notebook = "\"no-cgroup\"",
	  .ceiling = CB_CEILING_STRICTER, .words = levels, .meaning = "weakest level accepted" },
	{ KEY("history.file", CB_KEY_FILE, history_file), .notebook = "\"user\"", .agent = "\":memory:\"",
	  .words_ok = true,
	  .meaning = "input history: \"user\" = in the user's data folder, \":memory:\", \"none\", or a path" },
	{ KEY("audit.file", CB_KEY_FILE, audit_file), .notebook = "\"none\"",
	  .meaning = "audit log: \"none\" or a path" },
	{ KEY("devices", CB_KEY_LIST, devices), .notebook = "[]", .until_built = "[]", .meaning = "device nodes" },
};
const size_t cb_policy_keys_count = sizeof(cb_policy_keys) / sizeof(cb_policy_keys[0]);

const struct cb_policy_key *cb_policy_key_find(const char *name)
{
	for (size_t i = 0; i < cb_policy_keys_count; i++) {
		if (strcmp(cb_policy_keys[i].name, name) == 0)
			return &cb_policy_keys[i];
	}
	return NULL;
}
