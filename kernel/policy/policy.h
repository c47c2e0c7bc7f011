/* The policy: what one kernel's jail may do. JSON, strict; see docs/policy.md for the keys.
 *
 * Trust domain: supervisor, before its rights are dropped. Every key is known by one table (keys.c) that drives
 * parsing,
 * --set, defaults, error messages and explain. Values are complete after loading: defaults, file, environment, flags,
 * ceiling.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cb_workspace_policy { CB_WS_RW, CB_WS_RO, CB_WS_OVERLAY, CB_WS_TMPFS };
enum cb_packages_mode { CB_PACKAGES_SESSION, CB_PACKAGES_RO };
enum cb_switch_mode { CB_MODE_AUTO, CB_MODE_ALWAYS, CB_MODE_OFF };

struct cb_policy {
	char *name; /* "notebook", "agent", or the file's path */

	double timeout_cell, timeout_cpu, timeout_wait, timeout_grace, timeout_interrupt,
		timeout_idle;  /* seconds, 0 = none */
	uint64_t limit_memory; /* bytes, resolved from a share of what the host has; never more than leaves room below
				  the limit of a control group that we are in */
	char limit_memory_note[256]; /* that group and its figure, where it is less than the policy's; else empty */
	double limit_cpu;      /* cores */
	uint64_t limit_pids, limit_open_files, limit_file_size, limit_tmp, limit_shm, limit_inodes;
	uint64_t limit_output;	/* bytes of output per cell */
	uint64_t limit_message; /* bytes of one message */

	char *workspace_path;
	bool workspace_project; /* it says "project", whether the notebook lies in one or not */
	bool workspace_path_explicit; /* named by file or flag: a bad one is refused; as the default it becomes a tmpfs
				       */
	enum cb_workspace_policy workspace_mode;
	uint64_t workspace_size;
	bool workspace_size_capped; /* it says 0, and a ceiling has put its own figure there */
	bool workspace_target_neutral; /* /workspace instead of its own path */
	struct cb_strv workspace_protect;

	struct cb_bind *mounts; /* source, target, mode */
	size_t nmounts;
	char *root_path;
	struct cb_strv home_expose;
	enum cb_packages_mode packages_mode;
	enum cb_network_mode network_mode;
	struct cb_strv network_allow;
	struct cb_strv env_set;	 /* NAME=VALUE */
	struct cb_strv env_pass; /* names, `*` at the end allowed */
	struct cb_strv imports_allow;
	enum cb_switch_mode transactions_mode, warm_mode;
	uint64_t transactions_keep, transactions_names;
	struct cb_strv warm_preload;
	enum cb_isolation_level isolation_minimum;
	char *history_file; /* NULL = none kept, ":memory:", or an absolute path */
	char *audit_file;   /* NULL = none */

	struct cb_strv devices;

	struct cb_strv files; /* absolute paths of the files read, to be protected */
	struct cb_strv links; /* on the way to them: cells must not lead them to another file */
};

/* The file that history.file "user" means, ":memory:" where there is no home; malloc'd. */
char *cb_policy_user_history(void);

/* Loads a policy. `which` is a built-in or looked-up NAME, a path (with a '/'), or NULL for $CELLBLOCK_POLICY or
 * "notebook". `sets` are KEY=VALUE from --set. Errors name file, key and what is allowed; a valid key whose value this
 * version cannot honour is CB_E_NOT_BUILT and says so. */
int cb_policy_load(const char *which, char *const *sets, size_t nsets, struct cb_policy *ret_policy,
		   struct cb_err *err);
void cb_policy_release(struct cb_policy *p);
