/* `cellblock kernel`. Trust domain: supervisor. See start.c. */
#pragma once

struct cb_options;

int cb_command_kernel(const struct cb_options *o); /* the process's exit status */
