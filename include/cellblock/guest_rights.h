/* What a guest is, and may not become, whether pid 1 has forked it (sandbox/walls/caps.c) or a zygote was copied
 * (guest/copier/enter.c). */
#pragma once

#include <linux/securebits.h>

#define CB_JAIL_UID 1000 /* uid and gid inside */

/* So that uid 0 would mean nothing; locked. */
#define CB_GUEST_SECUREBITS                                                                                            \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |               \
	 SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)
