/* The two programs that build jails: the broker of a supervisor, and a run. Trust domain: outside. */
#pragma once

int cb_broker_main(int fd, int spec_fd);
int cb_run_main(int spec_fd, double timeout);
