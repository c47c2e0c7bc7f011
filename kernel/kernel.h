/* The kernel as a whole: made, ended. Trust domain: supervisor. See kernel.c. */
#pragma once

#include <stdbool.h>

struct cb_kernel;

/* With a policy and interpreter; connection, signature and channels are added by who starts it. */
int cb_kernel_init(struct cb_kernel *k);
void cb_kernel_release(struct cb_kernel *k);
void cb_kernel_shutdown(struct cb_kernel *k, bool restart);
/* However it ends: all that was asked is answered, what lies in the sockets included. */
void cb_kernel_answer_the_rest(struct cb_kernel *k);
