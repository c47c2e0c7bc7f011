/* Helpers: processes that pid 1 forks to serve the supervisor inside the jail. Private to sandbox/; see job.c. */
#pragma once

#include "../shared/jail.h"

#include <cellblock/job.h>
#include <limits.h>
#include <sys/stat.h>

struct cb_job {
	const struct cb_jail *jail;
	const char *workspace, *cwd; /* as the guest sees them */
	char **env;		     /* the guest's; NULL-terminated */
	int fd;
	struct cb_job_packet in; /* the latest packet received */
	size_t in_len;		 /* bytes of its payload */
};

/* pid 1's child: serves the request on `fd` and ends. */
_Noreturn void cb_job_main(const struct cb_jail *jail, int fd);
/* pid 1: there will be no helper. */
void cb_job_refuse(int fd, int code);

/* Waits for a packet; at the supervisor's end the process ends. */
void cb_job_receive(struct cb_job *job);
void cb_job_send(struct cb_job *job, const struct cb_job_frame *head, const void *payload, size_t len);
/* The answer, and the end of this process. */
_Noreturn void cb_job_done(struct cb_job *job, const struct cb_job_frame *head, const void *payload, size_t len);
/* `code` is negative; the text is a whole sentence for the user. */
_Noreturn void cb_job_fail(struct cb_job *job, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Says what became of the path: `code` is a negative errno. */
_Noreturn void cb_job_fail_path(struct cb_job *job, const char *path, int code);

/* ---- path.c ---- */

/* An entry of the workspace: the open folder that holds it, and its name in there ("." for that folder itself). */
struct cb_job_place {
	int folder;   /* O_PATH */
	bool is_root; /* the workspace itself */
	char name[NAME_MAX + 1];
};

#define CB_PLACE_FOLLOW 1u  /* a link at the end is followed */
#define CB_PLACE_PARENTS 2u /* missing folders on the way are made */

/* Finds `path` (relative to the workspace, or absolute and in it) without ever leaving the workspace, whatever links
 * there are. The entry need not exist. -EXDEV: it would leave. */
int cb_job_find(const char *workspace, const char *path, unsigned flags, struct cb_job_place *ret_place);

/* ---- files.c, remove.c, run.c, usage.c: one request each; they do not return ---- */

_Noreturn void cb_job_read(struct cb_job *job);
_Noreturn void cb_job_write(struct cb_job *job);
_Noreturn void cb_job_list(struct cb_job *job);
_Noreturn void cb_job_delete(struct cb_job *job);
_Noreturn void cb_job_clean(struct cb_job *job);
_Noreturn void cb_job_run(struct cb_job *job);
_Noreturn void cb_job_usage(struct cb_job *job);
/* The place of the request's path; ends the process with the reason if there is none. `path` is a copy to name. */
void cb_job_place_of_request(struct cb_job *job, unsigned flags, struct cb_job_place *ret_place, char path[PATH_MAX]);
/* A folder to be read; ends the process if it is none. */
int cb_job_open_folder(struct cb_job *job, const struct cb_job_place *place, const char *path);

/* ---- entries of a folder, as the kernel gives them ---- */

struct cb_dents {
	char buffer[16384] __attribute__((aligned(8)));
	size_t len, at;
};
/* The next name but "." and ".."; NULL at the end, or *ret_code negative. */
const char *cb_dents_next(struct cb_dents *d, int fd, int *ret_code);
