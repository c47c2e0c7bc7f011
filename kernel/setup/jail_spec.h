/* From policy and interpreter to the description of the jail. Trust domain: supervisor, at start. Pure but for looking
 * at paths. */
#pragma once

#include <cellblock/error.h>
#include <cellblock/sandbox.h>

#include "interpreter_facts.h"
#include "policy/policy.h"

#define CB_GUEST_TARGET "/run/cellblock/guest" /* where the guest package is inside */
#define CB_GUEST_CACHE_TARGET CB_GUEST_TARGET "/cellblock_guest/__pycache__"
#define CB_JAIL_SPEC_STEP "jail description" /* of errors that the policy is not to blame for */

struct cb_jail_spec_input {
	const struct cb_policy *policy;
	const struct cb_interpreter *interpreter; /* NULL: no guest, only a command (cellblock run) */
	bool bash;				  /* the guest is the one for cells of bash */
	const char *guest_dir;			  /* host folder of the guest package */
	const char *guest_cache;		  /* host folder of its compiled modules (guest_cache.h), or NULL */
	const char *connection_file;		  /* protected if it lies in the workspace; NULL = none */
	const char *session_name;		  /* JPY_SESSION_NAME or NULL */
	char *const *argv;			  /* command for cellblock run, else NULL: the guest is started */
};

/* Applies the home rule, env rules, binds, limits. A workspace that the policy names but that can't be one is an error.
 */
int cb_jail_spec_make(const struct cb_jail_spec_input *in, struct cb_jail_spec *ret_spec, struct cb_err *err);

/* Why a kernel loads its own interpreter all the same where warm.mode is "auto"; NULL: it need not. `folder` is the
 * zygotes' (warm_place.h). */
const char *cb_jail_spec_cold(const struct cb_jail_spec *spec, const char *folder);

/* Binds of the interpreter alone, for the jail that it is asked in. 0 or -ENOMEM. */
int cb_jail_spec_interpreter(const struct cb_interpreter *interpreter, struct cb_jail_spec *spec);
