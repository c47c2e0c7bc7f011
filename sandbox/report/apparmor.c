/* A profile for AppArmor that names this very program, wherever it was installed.
 *
 * Role: the profile's text, and the command that loads it. Trust domain: outside, with the rights of whoever asks; the
 * profile is loaded by root, who sees it. Invariants: each sign of the path that a profile gives a meaning is taken as
 * it is; the profile's name follows from the path, so that those of two installations do not replace each other.
 */
#include "apparmor.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "diagnose.h"

static uint32_t hash_of(const char *text)
{
	uint32_t hash = 0x811c9dc5u; /* FNV-1a */

	for (; *text != '\0'; text++)
		hash = (hash ^ (unsigned char)*text) * 0x01000193u;
	return hash;
}

int cb_apparmor_profile(const char *program, struct cb_buf *ret_text)
{
	static const char head[] = "# Lets this Cellblock make user namespaces, and restricts nothing: the walls of "
				   "its jails are its own\n# work. Whoever can write the file named below can make "
				   "them, too. Without it: remove this file, and run\n# apparmor_parser -R on it "
				   "before.\nabi <abi/4.0>,\ninclude <tunables/global>\n\n";
	int r = program[0] == '/' && strpbrk(program, "\n\r") == NULL ? 0 : -EINVAL;

	if (r == 0)
		r = cb_buf_append_str(ret_text, head);
	if (r == 0)
		r = cb_buf_printf(ret_text, "profile cellblock-jail-%08x \"", hash_of(program));
	for (const char *c = program; r == 0 && *c != '\0'; c++) {
		if (strchr("\\\"*?[]{}^,@", *c) != NULL)
			r = cb_buf_append_str(ret_text, "\\");
		r = r == 0 ? cb_buf_append(ret_text, c, 1) : r;
	}
	return r == 0 ? cb_buf_append_str(ret_text, "\" flags=(unconfined) {\n  userns,\n}\n") : r;
}

/* As one word of a shell. */
static int quote(const char *text, struct cb_buf *out)
{
	int r = cb_buf_append_str(out, "'");

	for (; r == 0 && *text != '\0'; text++)
		r = *text == '\'' ? cb_buf_append_str(out, "'\\''") : cb_buf_append(out, text, 1);
	return r == 0 ? cb_buf_append_str(out, "'") : r;
}

void cb_apparmor_cure(const char *program, char ret_cure[CB_APPARMOR_CURE_MAX])
{
	CB_AUTO_BUF out = CB_BUF_INIT(CB_APPARMOR_CURE_MAX - 1);
	uint32_t hash = hash_of(program);
	int r = strpbrk(program, "\n\r") == NULL ? 0 : -EINVAL;

	if (r == 0)
		r = cb_buf_append_str(&out, "allow it to this program alone: ");
	if (r == 0)
		r = quote(program, &out);
	if (r == 0)
		r = cb_buf_printf(&out,
				  " apparmor-profile | sudo tee /etc/apparmor.d/cellblock-jail-%08x && sudo "
				  "apparmor_parser -r /etc/apparmor.d/cellblock-jail-%08x",
				  hash, hash);
	if (r == 0)
		snprintf(ret_cure, CB_APPARMOR_CURE_MAX, "%.*s", (int)out.len, (const char *)out.data);
	else
		snprintf(ret_cure, CB_APPARMOR_CURE_MAX,
			 "install Cellblock under a shorter path; or, as root, write what "
			 "libexec/cellblock/cellblock-jail apparmor-profile prints to /etc/apparmor.d/cellblock-jail "
			 "and run apparmor_parser -r on that file");
}

int cb_apparmor_main(void)
{
	struct cb_host_facts facts;
	CB_AUTO_BUF text = CB_BUF_INIT(1u << 16);
	int r;

	cb_host_facts_read(&facts);
	r = cb_apparmor_profile(facts.program, &text);
	if (r == 0)
		r = cb_fd_write_all(STDOUT_FILENO, text.data, text.len);
	if (r < 0)
		fprintf(stderr, "cellblock-jail: no profile can name this program: %s\n", facts.program);
	return r < 0 ? 1 : 0;
}
