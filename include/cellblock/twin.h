/* Twins: frozen copies of a guest, from which its state comes back. The contract of supervisor, pid 1 and guest.
 *
 * A twin is made by the guest itself, as a child of pid 1 (by one clone with CLONE_PARENT, or forked twice): code that
 * waits for any child never meets it. It leads a session of its own, blocks all signals, and waits on its control
 * socket. It has channels of its own from the supervisor, so nothing that others left half written can reach it. Its
 * birth:
 *
 * - supervisor to guest, by wire: CHECKPOINT {"number": n}, "make twin n";
 * - supervisor to guest, by control socket, before that: CB_TWIN_CONTROL_BIRTH n with the twin's fds;
 * - supervisor to pid 1, by link, before both: CB_INIT_TWIN n, "a process may register as n";
 * - twin to pid 1, by registry: struct cb_registry_msg; the kernel says which process sent it;
 * - pid 1 to supervisor: CB_INIT_REGISTERED n;
 * - twin to supervisor, by its control socket: CB_TWIN_CONTROL_BORN n; the kernel says which process sent it, by the
 *   host's numbers;
 * - guest to supervisor, by wire: CHECKPOINT_REPLY.
 *
 * It can be used when REGISTERED and BORN have come. What can be done with it:
 *
 * - take-over: the guest has ended (EXITED) or is to end. CB_INIT_RESTORE n: pid 1 kills all processes but itself and
 *   those registered, n becomes the guest, CB_INIT_RESTORED n says so. Nobody runs then but pid 1, neither branches
 *   nor what claims to be a twin, and files are brought back. After that CB_TWIN_CONTROL_WAKE on the twin's control
 *   socket, RESUME on its wire and CB_INIT_GO_ON to pid 1; it answers RESUMED. From then on its channels are the
 *   guest's. Other twins stay stopped: nobody knows who is honest. One that goes on all the same (it has a timer, or
 *   others in the jail send SIGCONT) ends, with what it has started. Twins that are not children of pid 1 are none: it
 *   would not hear of that, and ends them.
 * - breed: CB_INIT_TWIN m names the twin, too, which runs again, and CB_TWIN_CONTROL_BREED m, with fds: it forks
 *   (twice) a child that registers as m, sends BORN, and waits on its own control socket, as a twin does. So a name can
 *   be rolled back to again and again, and branches be made.
 * - branch: CB_INIT_BRANCH m, CB_TWIN_CONTROL_BRANCH and RESUME: m runs beside the guest; its session is spared by
 *   RESTORE. Its birth brings no side wire. Signals go to it by its number.
 * - drop: CB_INIT_DROP n: pid 1 kills it (a branch, or one that stands still since a take-over: its session, and what
 *   descends from that), and answers CB_INIT_GONE n.
 *
 * A twin that ends unasked is reported with CB_INIT_GONE, a branch when the rest of its session is dead too. As long
 * as a twin is registered, pid 1 outlives the guest: it stops all other processes, sends CB_INIT_EXITED and waits for
 * RESTORE or TERMINATE. Numbers are given out by the supervisor, count up from 1 and are never used twice in a jail; 0
 * is the guest that the jail was started with.
 *
 * All of this is inside the jail's trust domain: hostile code can register a process of its own, or kill a twin. Then
 * its own session's state is lost, and nothing else.
 */
#pragma once

#include <stdint.h>

/* fds of a birth, in this order: the twin's wire, stdout, stderr, control socket and side wire */
enum { CB_BIRTH_WIRE, CB_BIRTH_STDOUT, CB_BIRTH_STDERR, CB_BIRTH_TWIN_CONTROL, CB_BIRTH_SIDE, CB_BIRTH_NFDS };

enum cb_twin_control_op {
	CB_TWIN_CONTROL_BIRTH = 1,  /* to a guest, with fds: for the CHECKPOINT of this number */
	CB_TWIN_CONTROL_BREED = 2,  /* to a twin, with fds: fork a child of this number */
	CB_TWIN_CONTROL_WAKE = 3,   /* to a twin: serve the wire; RESUME comes there */
	CB_TWIN_CONTROL_BRANCH = 4, /* the same, beside the guest: what is shared stays the guest's */
	CB_TWIN_CONTROL_BORN = 16,  /* from a twin: it is frozen and listens */
};

/* On the control socket, an AF_UNIX SOCK_SEQPACKET socketpair. */
struct cb_twin_control_msg {
	uint32_t op;
	uint32_t number;
};

/* On the registry, an AF_UNIX SOCK_SEQPACKET socketpair made by pid 1 with SO_PASSCRED. */
struct cb_registry_msg {
	uint32_t number;
};

/* Registered at one time. */
#define CB_TWINS_MAX 512
