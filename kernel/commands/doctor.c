/* `cellblock doctor`: what this host allows, found by trying. The trying is cellblock-jail's; this looks for
 * the kernelspecs that Jupyter sees, and becomes it.
 *
 * Trust domain: supervisor's program, no secrets.
 */
#include "command.h"
#include "kernelspec.h"
#include "policy/paths.h"
#include "setup/capture.h"

/* Each kernelspec as an option; an empty one where there is none. */
static int make_argv(const struct cb_options *o, const struct cb_install_paths *install_paths, struct cb_strv *ret_argv)
{
	CB_AUTO_STRV seen = { 0 };
	int r = cb_kernelspec_visible(install_paths, &seen);

	if (r == 0 && seen.count == 0)
		r = cb_strv_add(&seen, "");
	if (r == 0)
		r = cb_strv_add(ret_argv, install_paths->jail);
	if (r == 0)
		r = cb_strv_add(ret_argv, "doctor");
	for (size_t i = 0; r == 0 && i < seen.count; i++)
		r = cb_strv_addf(ret_argv, "--kernelspec=%s", seen.items[i]);
	return r == 0 && o->json ? cb_strv_add(ret_argv, "--json") : r;
}

int cb_command_doctor(const struct cb_options *o)
{
	struct cb_err err = { 0 };
	struct cb_install_paths install_paths = { 0 };
	int r = cb_install_paths_find(&install_paths, &err);

	if (r == 0) {
		CB_AUTO_STRV argv = { 0 };

		r = make_argv(o, &install_paths, &argv);
		if (r == 0)
			r = cb_replace_process(argv.items, -1);
		cb_err_set(&err, r, "doctor", NULL, "%s can't be started: %s", install_paths.jail, cb_err_text(r));
	}
	cb_install_paths_release(&install_paths);
	return cb_command_fail("doctor", &err);
}
