/* A reference or a packed-refs that a cell has written and git outside reads. What is accepted is read once more here,
 * the simple way that git reads it: no name leads out of refs.
 */
#include "../../../../sandbox/judge/parts.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good)
{
	if (!good)
		abort();
}

static void check_name(const char *name)
{
	must(strncmp(name, "refs/", 5) == 0 && strlen(name) > 5 && strlen(name) < PATH_MAX);
	must(strstr(name, "..") == NULL && strstr(name, "//") == NULL && strstr(name, "/.") == NULL);
	must(strpbrk(name, " ~^:?*[\\\n\t\r\x7f") == NULL && name[strlen(name) - 1] != '/');
}

/* As git reads one of these: "ref:" and blanks, or a number that a blank may follow. */
static void check_content(char *text)
{
	size_t n = strlen(text);

	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	if (strncmp(text, "ref:", 4) != 0) {
		must(strspn(text, "0123456789abcdef") == n && (n == 40 || n == 64));
		return;
	}
	for (text += 4; isspace((unsigned char)*text); text++)
		;
	check_name(text);
}

static void check_packed(char *text)
{
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
		if (line[0] != '#' && line[0] != '^')
			check_name(strchr(line, ' ') + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	must(text != NULL);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	if (cb_ref_is_content(text, size)) {
		must(strlen(text) == size);
		check_content(text);
	} else if (cb_ref_is_packed(text, size)) {
		check_packed(text);
	}
	free(text);
	return 0;
}
