/* The two reports of the command line. Trust domain: outside. */
#pragma once

#include <cellblock/sandbox.h>
#include <stdbool.h>

int cb_explain_main(int spec_fd, bool json);
/* kernelspecs: folders of those that Jupyter sees, or one "" = none; no items = not looked for */
int cb_doctor_main(bool json, const struct cb_strv *kernelspecs);
