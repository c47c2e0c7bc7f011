/* The AppArmor profile that lets this very program make user namespaces. Trust domain: outside; reads no files. */
#pragma once

#include <cellblock/buffer.h>

#define CB_APPARMOR_CURE_MAX 512

/* The profile for the program at this absolute path. -EINVAL for a path that no profile can name. */
int cb_apparmor_profile(const char *program, struct cb_buf *ret_text);
/* One command that loads it; where the path is too long for one line, in words. */
void cb_apparmor_cure(const char *program, char ret_cure[CB_APPARMOR_CURE_MAX]);
/* `cellblock-jail apparmor-profile` */
int cb_apparmor_main(void);
