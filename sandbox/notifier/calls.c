/* The table of notified calls: see calls.h.
 *
 * Trust domain: data, used by pid 1 for the filter and by the notifier for serving. Attributes of extended kind, and
 * renameat2, openat2 and fchmodat2, are not in the jail's filter at all.
 */
#include "calls.h"

#include <sys/syscall.h>

#define CALL(name, kind, serve, at, path, a, b)                                                                        \
	{                                                                                                              \
#name, SYS_##name, CB_NOTIFY_##kind, cb_serve_##serve, at, path, a, b                                  \
	}
#define NO CB_NO_ARG

const struct cb_notify_call cb_notify_calls[] = {
	CALL(openat, WRITE_OPEN, open, 0, 1, 2, 3),	 CALL(faccessat, WRITE_ASK, access, 0, 1, 2, NO),
	CALL(faccessat2, WRITE_ASK, access, 0, 1, 2, 3), CALL(mkdirat, WRITE, mkdir, 0, 1, 2, NO),
	CALL(mknodat, WRITE, mknod, 0, 1, 2, 3),	 CALL(unlinkat, WRITE, unlinkat, 0, 1, 2, NO),
	CALL(renameat, WRITE, rename, 0, 1, 2, 3),	 CALL(linkat, WRITE, link, 0, 1, 2, 3),
	CALL(symlinkat, WRITE, symlink, 1, 2, 0, NO),	 CALL(truncate, WRITE, truncate, NO, 0, 1, NO),
	CALL(fchmodat, WRITE, chmod, 0, 1, 2, NO),	 CALL(fchmod, WRITE, chmod, 0, NO, 1, NO),
	CALL(fchownat, WRITE, chown, 0, 1, 2, 4),	 CALL(fchown, WRITE, lchown, 0, NO, 1, NO),
	CALL(utimensat, WRITE, utimens, 0, 1, 2, 3),	 CALL(bind, BIND, bind, NO, NO, NO, NO),
	CALL(connect, CONNECT, connect, NO, NO, NO, NO),
#ifdef SYS_open
	CALL(open, WRITE_OPEN, open, NO, 0, 1, 2),	 CALL(access, WRITE_ASK, access, NO, 0, 1, NO),
	CALL(creat, WRITE, open, NO, 0, NO, 1),		 CALL(mkdir, WRITE, mkdir, NO, 0, 1, NO),
	CALL(mknod, WRITE, mknod, NO, 0, 1, 2),		 CALL(unlink, WRITE, unlink, NO, 0, NO, NO),
	CALL(rmdir, WRITE, rmdir, NO, 0, NO, NO),	 CALL(rename, WRITE, rename, NO, 0, NO, 1),
	CALL(link, WRITE, link, NO, 0, NO, 1),		 CALL(symlink, WRITE, symlink, NO, 1, 0, NO),
	CALL(chmod, WRITE, chmod, NO, 0, 1, NO),	 CALL(chown, WRITE, chown, NO, 0, 1, NO),
	CALL(lchown, WRITE, lchown, NO, 0, 1, NO),
#endif
};
const size_t cb_notify_calls_count = CB_COUNT(cb_notify_calls);
