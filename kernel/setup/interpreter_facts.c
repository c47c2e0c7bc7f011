/* What is known of the interpreter: which IPython cells get, and its end. See interpreter_facts.h.
 *
 * Trust domain: supervisor, at start. */
#include "interpreter_facts.h"

#include <cellblock/wire.h>
#include <stdio.h>
#include <stdlib.h>

void cb_interpreter_release(struct cb_interpreter *i)
{
	free(i->executable);
	free(i->version);
	free(i->ipython_version);
	free(i->bash_version);
	free(i->venv);
	free(i->conda);
	free(i->facts);
	cb_strv_release(&i->prefixes);
	cb_strv_release(&i->not_followed);
	cb_strv_release(&i->missing);
	*i = (struct cb_interpreter){ 0 };
}

bool cb_interpreter_is_plain(const struct cb_interpreter *i)
{
	return i->ipython_version == NULL || strverscmp(i->ipython_version, CB_GUEST_OLDEST_IPYTHON) < 0;
}

void cb_interpreter_ipython_text(const struct cb_interpreter *i, char ret[96])
{
	if (i->ipython_version == NULL)
		snprintf(ret, 96, "no IPython: plain mode");
	else if (cb_interpreter_is_plain(i))
		snprintf(ret, 96, "IPython %s, which is older than " CB_GUEST_OLDEST_IPYTHON ": plain mode",
			 i->ipython_version);
	else
		snprintf(ret, 96, "IPython %s", i->ipython_version);
}
