/* Runs a fuzz target over stored inputs, where there is no libFuzzer: usage: fuzz_X FILE|DIR…
 *
 * Every file below the given paths is one input, and the empty input is always tried. Exit status 1 if a path cannot be
 * read or held no file, so that a lost corpus is noticed. A finding is a crash, an assertion or a sanitizer's report.
 */
#include <cellblock/fd.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_INPUT (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned inputs;

static int run(const char *path, const struct stat *st, int flag, struct FTW *place)
{
	CB_AUTO_FD fd = -1;
	char *data = NULL;
	uint8_t *exact;
	size_t len = 0;

	(void)st;
	(void)place;
	if (flag == FTW_D)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (flag != FTW_F || fd < 0 || cb_fd_read_all(fd, MAX_INPUT, &data, &len) < 0) {
		fprintf(stderr, "%s: cannot be read\n", path);
		return 1;
	}
	exact = malloc(len > 0 ? len : 1); /* no terminator behind it: AddressSanitizer then sees a read past the end */
	if (exact == NULL)
		abort();
	memcpy(exact, data, len);
	free(data);
	LLVMFuzzerTestOneInput(exact, len);
	free(exact);
	inputs++;
	return 0;
}

int main(int argc, char **argv)
{
	int failed = argc < 2;

	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++) {
		unsigned before = inputs;

		if (nftw(argv[i], run, 16, FTW_PHYS) != 0 || inputs == before) {
			fprintf(stderr, "%s: no inputs\n", argv[i]);
			failed = 1;
		}
	}
	printf("%u inputs\n", inputs);
	return failed;
}
