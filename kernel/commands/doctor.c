/* `cellblock doctor`: what this host allows, found by trying. The trying is cellblock-jail's; this looks for a
 * kernelspec that Jupyter sees, and becomes it.
 *
 * Trust domain: supervisor's program, no secrets.
 */
#include "command.h"
#include "kernelspec.h"
#include "policy/paths.h"
#include "setup/capture.h"

int cb_command_doctor(const struct cb_options *o)
{
	struct cb_err err = { 0 };
	struct cb_places places = { 0 };
	int r = cb_places_find(&places, &err);

	if (r == 0) {
		CB_AUTO_PATH seen = cb_kernelspec_visible(&places);
		char *argv[] = { places.jail, (char[]){ "doctor" }, (char[]){ "--kernelspec" },
				 seen != NULL ? seen : (char[]){ "" }, o->json ? (char[]){ "--json" } : NULL, NULL };

		r = cb_replace_process(argv, -1);
		cb_err_set(&err, r, "doctor", NULL, "%s can't be started: %s", places.jail, cb_err_text(r));
	}
	cb_places_release(&places);
	return cb_command_fail("doctor", &err);
}
