/* Jobs: what the supervisor asks of a helper process inside a living jail: files of the workspace, commands, usage.
 *
 * A job has a SEQPACKET socketpair of its own. One end goes to pid 1 (CB_INIT_JOB), which forks a helper for it; the
 * helper is our code under the guest's filter, with the guest's uid and without any right that the guest lacks. So it
 * sees what cells see, and can do no more than they. It ends with its job, or when the supervisor closes its end.
 *
 *	supervisor: REQUEST, DATA…, END      (shutdown for writing = stop the command, close = forget it)
 *	helper:     FACTS, BYTES…, ENTRY…, PROGRESS…, then DONE once
 *
 * The guest can kill or stop a helper (same uid), but neither trace it nor take its descriptors: undumpable, and the
 * filter has no ptrace. A job that ends without DONE was killed. What a helper says is data of the guest's all the
 * same: the supervisor checks every length and caps every sum.
 */
#pragma once

#include <stdint.h>

#define CB_JOB_CHUNK 65536		/* bytes of payload in one packet */
#define CB_JOB_ARGUMENTS_MAX (1u << 20) /* bytes of argv and env of a command; the kernel's own limit is above */
#define CB_JOB_TEXT_MAX 1024		/* bytes of DONE's text */

enum cb_job_kind {
	CB_JOB_READ = 1, /* payload: path; a: offset, b: length at most */
	CB_JOB_WRITE,	 /* payload: path; a: offset; then DATA and END */
	CB_JOB_LIST,	 /* payload: path */
	CB_JOB_DELETE,	 /* payload: path */
	CB_JOB_CLEAN,	 /* payload: path */
	CB_JOB_RUN,	 /* payload: working folder; a: bytes of arguments, b: count of argv, c: milliseconds of grace.
			    The arguments (argv, then additions to env, each with its NUL) come first in DATA, then
			    stdin */
	CB_JOB_USAGE,	 /* no payload */
};

enum cb_job_op {
	CB_JOB_REQUEST = 1, /* down, first: code is the kind */
	CB_JOB_DATA = 2,    /* down */
	CB_JOB_END = 3,	    /* down: no more DATA */

	CB_JOB_FACTS = 16,    /* up, READ: a: size, b: mtime in ns */
	CB_JOB_BYTES = 17,    /* up, READ: content; RUN: output, code is 1 or 2 */
	CB_JOB_ENTRY = 18,    /* up, LIST: payload: name; code: enum cb_job_type, a: size, b: mtime in ns */
	CB_JOB_PROGRESS = 19, /* up: it is at work */
	CB_JOB_DONE = 20,     /* up, last. code 0 or negative, then payload says what failed. WRITE: a: size of the
				 file; DELETE, CLEAN: a: entries removed; CLEAN: b: entries left, c: how many of these
				 are protected, or mounts; RUN: a: wait status and payload: struct cb_job_usage;
				 USAGE: payload: struct cb_job_usage */
};

/* flags of REQUEST */
#define CB_JOB_AT_OFFSET 1u /* WRITE: keep what is there, write at `a` */
#define CB_JOB_APPEND 2u    /* WRITE: keep what is there, write behind it */
#define CB_JOB_PARENTS 4u   /* WRITE: make missing folders */
#define CB_JOB_RECURSIVE 8u /* DELETE: a folder with all that is in it */
#define CB_JOB_EXCLUSIVE 16u /* WRITE: the entry is not there, not even as a link, or it fails */

enum cb_job_type { CB_JOB_FILE = 1, CB_JOB_FOLDER, CB_JOB_LINK, CB_JOB_PIPE, CB_JOB_SOCKET, CB_JOB_DEVICE };

struct cb_job_frame {
	uint32_t op;
	int32_t code;
	uint64_t a, b;
	uint32_t c;
	uint32_t flags;
};

struct cb_job_packet {
	struct cb_job_frame head;
	uint8_t payload[CB_JOB_CHUNK];
};

/* RUN: of the command and the children it waited for. USAGE: of all processes in the jail. */
struct cb_job_usage {
	uint64_t cpu_user_us, cpu_sys_us;
	uint64_t memory_bytes;		  /* USAGE: resident now, shared pages counted in each process */
	uint64_t memory_peak_bytes;	  /* RUN */
	uint64_t read_bytes, write_bytes; /* RUN */
	uint64_t processes, threads;	  /* USAGE: without pid 1 and the helper */
	uint64_t tmp_bytes, shm_bytes;	  /* USAGE: in /tmp and /dev/shm */
};
