/* A folder for the tests of a program, made and removed with their group; the environment names no home and no virtual
 * environment. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "../../folder.h"

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-python-XXXXXX");
	unsetenv("VIRTUAL_ENV");
	return mkdtemp(folder) != NULL ? setenv("HOME", "/nonexistent", 1) : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	return folder_remove(folder);
}
