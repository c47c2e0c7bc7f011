/* A writable workspace, looked at from outside now and then. Trust domain: supervisor. See workspace_watch.c. */
#pragma once

#include "workspace.h"

/* The first look, before anything runs. */
void cb_workspace_watch_start(struct cb_workspace *ws);
/* A cell has ended: looks again, but not all the time. */
void cb_workspace_watch_cell_ended(struct cb_workspace *ws);
/* The last look: what no cell could say goes to the log. */
void cb_workspace_watch_end(struct cb_workspace *ws);
