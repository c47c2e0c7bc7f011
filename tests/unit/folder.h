/* A test's folder, with all that is in it, goes away. */
#pragma once

#include <ftw.h>
#include <stdio.h>

static inline int folder_remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static inline int folder_remove(const char *path)
{
	return nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
