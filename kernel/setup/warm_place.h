/* Where this user's zygotes are found. Trust domain: supervisor's program, at start. Looks at paths alone. */
#pragma once

/* The folder's path, whether it is there or not: as the host's root below /run, else below XDG_RUNTIME_DIR, or below
 * /tmp. malloc'd; NULL = no memory. */
char *cb_warm_place(void);
