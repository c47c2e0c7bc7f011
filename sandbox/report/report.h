/* The two reports of the command line. Trust domain: outside. */
#pragma once

#include <stdbool.h>

int cb_explain_main(int spec_fd, bool json);
int cb_doctor_main(bool json, const char *kernelspec);
