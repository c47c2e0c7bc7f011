/* A line of a zygote's stamp for a path as it is now, for tests of what reads stamps. */
#pragma once

#include <stdio.h>
#include <sys/stat.h>

static inline void stamp_of(const char *path, char *ret, size_t size)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	snprintf(ret, size, "%llu %llu %llu %lld %lld %s\n", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino, (unsigned long long)st.st_size,
		 (long long)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		 (long long)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec, path);
}
