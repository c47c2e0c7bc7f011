/* What pid 1 does before it starts the guest, in order. Data: run by broker/launch.c, printed by report/explain.c.
 *
 * Trust domain: pid 1 of a jail. The order matters: the death signal first, so that no half-built jail is left behind;
 * mounts while there are capabilities for them; limits before capabilities go; Landlock after, since it needs
 * no_new_privs and forbids mounts. The filter follows in init.c.
 */
#include "../root/root.h"
#include "../shared/jail.h"
#include "../walls/caps.h"
#include "../walls/landlock.h"
#include "../walls/limits.h"
#include "init.h"
#include "parts.h"

const struct cb_step cb_jail_steps[] = {
	{ "session", "its own session and keyring, a hostname of its own, and the jail dies with the broker",
	  cb_step_session },
	{ "loopback", "127.0.0.1 works inside; with network none there is no other interface", cb_step_loopback },
	{ "private mounts", "no mount made here reaches the host", cb_step_private_mounts },
	{ "new root", "an empty root that shows only what programs need, read-only", cb_step_new_root },
	{ "dev", "a handful of devices, and a terminal file system of its own", cb_step_dev },
	{ "proc", "shows only this jail's processes; /proc/sys read-only, host-wide files masked", cb_step_proc },
	{ "tmpfs", "/tmp, home and /dev/shm in memory, limited in bytes and files", cb_step_tmpfs },
	{ "binds", "the interpreter's folders, the guest and the policy's mounts", cb_step_binds },
	{ "workspace", "the one folder of the host that may be written: read-only here, by name through the notifier",
	  cb_step_workspace },
	{ "workspace binds", "the interpreter's folders and the policy's mounts that lie in the workspace",
	  cb_step_workspace_binds },
	{ "pivot", "the host's files are gone for good; the root becomes read-only", cb_step_pivot },
	{ "limits", "memory, open files and file sizes of each process are bounded, and the number of processes",
	  cb_step_limits },
	{ "capabilities", "no capability is left, none can come back, no program gives new rights",
	  cb_step_caps_of_pid1 },
	{ "landlock", "a second wall: rules of the kernel say once more what may be read, run and written",
	  cb_step_landlock },
};
const size_t cb_jail_steps_count = CB_COUNT(cb_jail_steps);
