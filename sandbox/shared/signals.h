/* Signals of a process that is about to become another program. Trust domain: inside the jail. */
#pragma once

void cb_default_signals(void); /* before an exec: nothing blocked, nothing ignored */
