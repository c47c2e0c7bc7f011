/* All policy keys. See keys.h for what a row means, docs/policy.md for what each key means.
 *
 * Trust domain: supervisor, at start. Invariants: each member of struct cb_policy that a user can set has exactly one
 * row; defaults pass through the same setter as a user's values, so a default can't be one that a user could not write.
 */
#include "keys.h"

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
static const struct cb_key_word warm_modes[] = { { "off", CB_MODE_OFF }, { "auto", CB_MODE_AUTO }, { NULL, 0 } };
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

/* What current tools run by themselves: docs/policy.md says why each is here. */
#define PROTECT_DEFAULT                                                                                                \
	"[\".git\", \".hg\", \".sl\", \".jj\", \".bzr\", \"_darcs\", \".pijul\", \".fossil-settings\", "               \
	"\".repo\", \".svn/hooks\", \".github/hooks\", \".pre-commit-config.yaml\", \"prek.toml\", "                   \
	"\".husky\", \".githooks\", \"lefthook.*\", \"lefthook-local.*\", \".lefthook*\", "                            \
	"\".overcommit.yml\", \".vscode\", \"*.code-workspace\", \".idea\", \".fleet\", \".vs\", \".bsp\", "           \
	"\".externalToolBuilders\", \".kateproject\", \"hie.yaml\", \".zed\", \".helix\", \".vim\", "                  \
	"\".vimrc\", \".nvimrc\", \".nvim.lua\", \".exrc\", \".exrc.lua\", \".lazy.lua\", \".lvimrc\", "               \
	"\".dir-locals*.el\", \".devcontainer\", \".devcontainer.json\", \".envrc\", \".direnv\", "                    \
	"\".shadowenv.d\", \".autoenv*\", \"mise.toml\", \"mise.*.toml\", \".mise.toml\", \".mise.*.toml\", "          \
	"\".mise\", \"mise/config.toml\", \".config/mise\", \".tool-versions\", \".mvn\", \".yarnrc.yml\", "           \
	"\".yarnrc\", \".npmrc\", \".pnpmfile.cjs\", \"devenv.*\", \"flake.nix\", \"shell.nix\", "                     \
	"\".claude\", \".cursor\", \".mcp.json\", \".codex\", \".gemini\", \".opencode\", \"opencode.json\", "         \
	"\"opencode.jsonc\", \".windsurf\", \".kiro\", \".continue\", \".roo\", \".trae\", \".amazonq\", "             \
	"\".qwen\", \".crush.json\", \"crush.json\", \".factory\", \".aider.conf.yml\", "                              \
	"\"sitecustomize.py\", \"usercustomize.py\", \".pdbrc\", \".pylintrc\", \"pylintrc\", "                        \
	"\"profile_default\", \"ipython_*config.py\", \".gdbinit\", \".lldbinit\", \".Rprofile\", "                    \
	"\"renv/activate.R\", \".Renviron\", \".octaverc\", \"startup.m\", \".irbrc\", \".pryrc\", "                   \
	"\".rdbgrc\", \".byebugrc\", \".perldb\", \".ghci\", \".iex.exs\", \".ocamlinit\", "                           \
	"\"jupyter_*config.py\", \"jupyter_*config.json\", \"pyvenv.cfg\", \"conda-meta\", "                           \
	"\"site-packages\", \"dist-packages\", \"bin/activate\", \"bin/activate.*\", "                                 \
	"\"bin/activate_this.py\", \"bin/python\", \"bin/python3*\", \"bin/pypy*\", \"bin/pip\", "                     \
	"\"bin/pip3*\", \"bin/pip-3*\", \"Scripts/activate\", \"Scripts/activate.*\", "                                \
	"\"Scripts/python*.exe\", \"Scripts/pip*.exe\", \"activate.d\", \"deactivate.d\", \".condarc\", "              \
	"\"pip.conf\", \"pip.ini\"]"
#define EXPOSE_DEFAULT                                                                                                 \
	"[\".ipython/profile_default/ipython_config.py\", \".ipython/profile_default/ipython_kernel_config.py\", "     \
	"\".ipython/profile_default/startup\", \".config/matplotlib/matplotlibrc\", "                                  \
	"\".config/matplotlib/stylelib\"]"

const struct cb_policy_key cb_policy_keys[] = {
	{ KEY("timeout.cell", CB_KEY_SECONDS, timeout_cell), .notebook = "0", .agent = "120", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT },
	{ KEY("timeout.cpu", CB_KEY_SECONDS, timeout_cpu), .notebook = "0", .agent = "60", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT },
	{ KEY("timeout.wait", CB_KEY_SECONDS, timeout_wait), .notebook = "0", .agent = "600", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT },
	{ KEY("timeout.grace", CB_KEY_SECONDS, timeout_grace), .notebook = "5", .agent = "2", .maximum = 3600,
	  .ceiling = CB_CEILING_SMALLER },
	{ KEY("timeout.interrupt", CB_KEY_SECONDS, timeout_interrupt), .notebook = "0", .agent = "2", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT },
	{ KEY("timeout.idle", CB_KEY_SECONDS, timeout_idle), .notebook = "0", .agent = "900", .maximum = 1e9,
	  .ceiling = CB_CEILING_LIMIT },
	{ KEY("limits.memory", CB_KEY_SHARE, limit_memory), .notebook = "\"75%\"", .agent = "\"512M\"",
	  .minimum = 48 << 20, .maximum = 1e18, .ceiling = CB_CEILING_SMALLER },
	{ KEY("limits.cpu", CB_KEY_CORES, limit_cpu), .notebook = "0", .agent = "0.5", .minimum = 0.01, .maximum = 1e6,
	  .zero_is_none = true, .ceiling = CB_CEILING_LIMIT },
	{ KEY("limits.pids", CB_KEY_COUNT, limit_pids), .notebook = "4096", .agent = "100", .minimum = 8,
	  .maximum = 4194304, .ceiling = CB_CEILING_SMALLER },
	{ KEY("limits.open_files", CB_KEY_COUNT, limit_open_files), .notebook = "65536", .agent = "1024", .minimum = 64,
	  .maximum = 1048576, .ceiling = CB_CEILING_SMALLER },
	{ KEY("limits.file_size", CB_KEY_SIZE, limit_file_size), .notebook = "0", .agent = "\"256M\"", .minimum = 4096,
	  .maximum = 1e18, .zero_is_none = true, .ceiling = CB_CEILING_LIMIT },
	{ KEY("limits.tmp", CB_KEY_SHARE, limit_tmp), .notebook = "\"1G\"", .agent = "\"64M\"", .minimum = 65536,
	  .maximum = 1e18, .ceiling = CB_CEILING_SMALLER },
	{ KEY("limits.shm", CB_KEY_SHARE, limit_shm), .notebook = "\"50%\"", .agent = "\"64M\"", .minimum = 65536,
	  .maximum = 1e18, .ceiling = CB_CEILING_SMALLER },
	{ KEY("limits.inodes", CB_KEY_COUNT, limit_inodes), .notebook = "1000000", .agent = "20000", .minimum = 256,
	  .maximum = 1e12, .ceiling = CB_CEILING_SMALLER },
	{ KEY("limits.output", CB_KEY_SIZE, limit_output), .notebook = "\"64M\"", .agent = "\"1M\"", .minimum = 1024,
	  .maximum = 1e15, .zero_is_none = true, .ceiling = CB_CEILING_LIMIT },
	{ KEY("limits.message", CB_KEY_SIZE, limit_message), .notebook = "\"64M\"", .agent = "\"16M\"",
	  .minimum = 65536, .maximum = G, .ceiling = CB_CEILING_SMALLER },
	{ KEY("workspace.path", CB_KEY_FOLDER, workspace_path), .notebook = "\".\"" },
	{ KEY("workspace.mode", CB_KEY_WORD, workspace_mode), .notebook = "\"rw\"", .agent = "\"overlay\"",
	  .ceiling = CB_CEILING_STRICTER, .words = workspace_modes },
	{ KEY("workspace.size", CB_KEY_SIZE, workspace_size), .notebook = "0", .agent = "\"256M\"", .minimum = 65536,
	  .maximum = 1e18, .zero_is_none = true, .ceiling = CB_CEILING_LIMIT },
	{ KEY("workspace.target", CB_KEY_EITHER, workspace_target_neutral), .notebook = "\"same\"",
	  .agent = "\"/workspace\"", .words = workspace_targets },
	{ KEY("workspace.protect", CB_KEY_LIST, workspace_protect), .notebook = PROTECT_DEFAULT,
	  .ceiling = CB_CEILING_UNION, .item = CB_ITEM_RELATIVE },
	{ KEY("mounts", CB_KEY_MOUNTS, mounts), .notebook = "[]", .ceiling = CB_CEILING_SUBSET },
	{ KEY("root.path", CB_KEY_FOLDER, root_path), .notebook = "\"host\"" },
	{ KEY("home.expose", CB_KEY_LIST, home_expose), .notebook = EXPOSE_DEFAULT, .agent = "[]",
	  .ceiling = CB_CEILING_SUBSET, .item = CB_ITEM_WHOLE_RELATIVE },
	{ KEY("packages.mode", CB_KEY_WORD, packages_mode), .notebook = "\"session\"", .ceiling = CB_CEILING_STRICTER,
	  .words = packages_modes },
	{ KEY("network.mode", CB_KEY_WORD, network_mode), .notebook = "\"none\"", .ceiling = CB_CEILING_STRICTER,
	  .words = network_modes },
	{ KEY("network.allow", CB_KEY_LIST, network_allow), .notebook = "[]", .not_built = true,
	  .ceiling = CB_CEILING_SUBSET },
	{ KEY("env.set", CB_KEY_MAP, env_set), .notebook = "{}" },
	{ KEY("env.pass", CB_KEY_LIST, env_pass), .notebook = "[\"LANG\", \"LC_*\", \"TZ\"]", .agent = "[]",
	  .ceiling = CB_CEILING_SUBSET, .item = CB_ITEM_VARIABLE },
	{ KEY("imports.allow", CB_KEY_LIST, imports_allow), .notebook = "[]", .item = CB_ITEM_MODULE },
	{ KEY("transactions.mode", CB_KEY_WORD, transactions_mode), .notebook = "\"auto\"", .agent = "\"always\"",
	  .words = transactions_modes },
	{ KEY("transactions.keep", CB_KEY_COUNT, transactions_keep), .notebook = "1", .maximum = 50 },
	{ KEY("transactions.names", CB_KEY_COUNT, transactions_names), .notebook = "16", .maximum = 200 },
	{ KEY("warm.mode", CB_KEY_WORD, warm_mode), .notebook = "\"auto\"", .ceiling = CB_CEILING_STRICTER,
	  .words = warm_modes },
	{ KEY("warm.preload", CB_KEY_LIST, warm_preload), .notebook = "[]", .agent = "[\"numpy\", \"pandas\"]",
	  .maximum = CB_PRELOAD_MAX, .ceiling = CB_CEILING_SUBSET, .item = CB_ITEM_WHOLE_MODULE },
	{ KEY("isolation.minimum", CB_KEY_WORD, isolation_minimum), .notebook = "\"no-cgroup\"",
	  .ceiling = CB_CEILING_STRICTER, .words = levels },
	{ KEY("history.file", CB_KEY_FILE, history_file), .notebook = "\"user\"", .agent = "\":memory:\"",
	  .words_ok = true },
	{ KEY("audit.file", CB_KEY_FILE, audit_file), .notebook = "\"none\"" },
	{ KEY("devices", CB_KEY_LIST, devices), .notebook = "[]", .not_built = true },
};
const size_t cb_policy_keys_count = CB_COUNT(cb_policy_keys);

const struct cb_policy_key *cb_policy_key_find(const char *name)
{
	for (size_t i = 0; i < cb_policy_keys_count; i++)
		if (strcmp(cb_policy_keys[i].name, name) == 0)
			return &cb_policy_keys[i];
	return NULL;
}
