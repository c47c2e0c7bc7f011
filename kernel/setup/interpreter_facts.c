/* What is known of the interpreter: its end. See interpreter_facts.h. Trust domain: supervisor, at start. */
#include "interpreter_facts.h"

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
