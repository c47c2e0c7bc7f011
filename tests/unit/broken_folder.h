/* Folders that can't be read to their end: for programs linked with --wrap=readdir. */
#pragma once

#include <dirent.h>
#include <errno.h>

static int entries_left = -1; /* until they fail; -1: they do not */

struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);

struct dirent *__wrap_readdir(DIR *dir)
{
	if (entries_left == 0) {
		errno = EIO;
		return NULL;
	}
	entries_left -= entries_left > 0;
	return __real_readdir(dir);
}
