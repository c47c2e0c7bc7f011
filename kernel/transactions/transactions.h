/* States that come back: what is held of them. Trust domain: supervisor. The functions are declared in the header of
 * the file that has them. */
#pragma once

#include <cellblock/sandbox.h>
#include <cellblock/twin.h>

#include "jupyter/comms.h"
#include "jupyter/tools.h"
#include "python/ends.h"
#include "python/python.h"
#include "shells/shells.h"
#include "twin_cost.h"
#include "undo_log.h"

struct cb_broker_queue;
struct cb_transactions;
struct cb_workspace;

/* Named checkpoints and rollback. */
#define CB_CHECKPOINT_NAME 128 /* bytes of a name, with its end */
#define CB_CHECKPOINT_ASKED 16 /* by one cell */

/* Where to. */
struct cb_back {
	char name[CB_CHECKPOINT_NAME]; /* "" = to before the last cells */
	unsigned undo;		       /* exactly so many of them; 0 = the last one, and as many more as need be */
};

struct cb_checkpoints {
	char asked[CB_CHECKPOINT_ASKED]
		  [CB_CHECKPOINT_NAME]; /* by %checkpoint: to be made now that its cell has ended */
	unsigned nasked, passed_over; /* passed_over: names that were none, or too many, and of which nobody was told */
	bool rolling;	/* a rollback is under way: for the current request */
};

/* Copies of a guest from which its state comes back (include/cellblock/twin.h). */
/* What a twin has not of its guest. */
struct cb_left_out {
	int64_t threads, sockets, children, shared_maps;
	int64_t native;	     /* threads that Python does not know */
	int64_t native_back; /* such threads that do come back: of a copy that is made of a woken state */
	int64_t forked;	     /* 1: it was made by os.fork, with what runs at each fork */
	char native_of[64];  /* the library that they are of, or their own names */
};
struct cb_twin {
	uint32_t number; /* 0 = free */
	bool registered, born;
	enum cb_twin_use {
		CB_TWIN_KEPT,
		CB_TWIN_ROLLBACK, /* a copy of one, which is to take over at once */
		CB_TWIN_BRANCH,	  /* runs beside the guest as soon as it is ready */
		CB_TWIN_ADOPTED,  /* a copy of a branch, which is to take over at once */
	} use;
	uint32_t branch;	       /* the number of that one */
	char name[CB_CHECKPOINT_NAME]; /* "" = none: it is kept by age */
	double created;
	int64_t asked_ms; /* monotonic: when it was to be made */
	struct cb_guest_ends ends;
	pid_t pid;		       /* as the kernel says */
	uint64_t room;		       /* bytes of memory that it may copy for itself */
	double cpu_s, copied_s;	       /* processors' time: as last read; and what of it was for that */
	uint64_t cell;		       /* the last one whose effects it has, by the count of undo_log.h */
	int64_t count;		       /* the execution count then */
	struct cb_undo_log_count live; /* and how many had run */
	struct cb_comms comms;
	struct cb_left_out left_out;
	enum { CB_FILES_STAY, CB_FILES_COMING, CB_FILES_KEPT } files; /* what a take-over does with the workspace's */
	uint32_t snapshot;					      /* of them; one that was bred has its parent's */
	uint64_t written, commits; /* struct cb_twins' counts when that was taken */
	char files_problem[224];				      /* not all of them were kept, or came back */
	bool files_lost;					      /* none came back */
};

#define CB_TWINS_ENDING_MAX 8

/* How far the take-over by one twin has come. One that fails is over: the next older one's begins anew. */
enum cb_takeover {
	CB_TAKEOVER_NONE,
	CB_TAKEOVER_ENDING,   /* pid 1 is to end all but it, and to say RESTORED */
	CB_TAKEOVER_SETTLING, /* it has; the dead one's memory is to come back first */
	CB_TAKEOVER_FILES,    /* from here on it has the guest's place; the workspace's files are brought back */
	CB_TAKEOVER_HELD,     /* it is not woken before something is asked of it */
	CB_TAKEOVER_WAKING,   /* it is to say RESUMED */
	CB_TAKEOVER_COPYING,  /* it serves, but nobody is told before it has been copied in its turn */
	CB_TAKEOVER_LOOKING,  /* … or was looked at for a while */
};

struct cb_twins {
	bool possible;	   /* in this jail, with this policy */
	bool stale;	   /* something has run since the newest one was made */
	bool after_cell;   /* and a cell was among it, or what a client wrote to files that go back */
	uint64_t written;  /* how many requests have ended that may have written such */
	uint64_t commits;  /* how many commits have changed what is below the layer */
	unsigned again;	   /* how often one was wanted though nothing had run */
	unsigned failures; /* in a row */
	int64_t again_ns;  /* threads did not stop: not before then; 0 = at any time */
	bool unmade;	   /* the newest one could not be made, and nothing has run since */
	int lack;	   /* why none could be begun, the last time: -errno; 0: not for want of channels */
	bool lack_told;	   /* that none could be made */
	char given_up[224]; /* why none is tried any more, if it is for failures */
	uint32_t last_number;
	struct cb_twin twin[CB_TWINS_MAX];
	struct cb_twin_ending {	  /* told to end, the last few: large memory takes its time */
		pid_t pid;	  /* 0 = free */
		int64_t since_ns; /* when it was told */
		double cpu_s;	  /* as last read */
	} ending[CB_TWINS_ENDING_MAX];
	unsigned ending_next;
	struct cb_twin *coming; /* not ready yet; NULL = none */
	enum cb_twin_use coming_use;
	bool asked;		/* and CHECKPOINT is not answered */
	int64_t begun_ns;	/* when it was asked for */
	int64_t silent_ns;	/* then, or when what Python says was last left unread */
	bool slow_told;		/* that it takes long was told */
	int64_t interrupted_at; /* by a user, meanwhile; 0 = not */
	enum cb_takeover takeover;
	struct cb_twin *waking; /* takes over, and does not serve yet; NULL = none */
	int twin_control_slot;	/* of the one that is coming */
	int idle_timer, deadline_timer, rest_timer;
	bool rested;	   /* since the newest one was made Python has put in order what that has cost it */
	int64_t worked_ns; /* what it had had of processors then */
	struct cb_undo_log undo_log;
	struct cb_undo_log adopted_ran;	      /* of the branch whose copy takes over, if that branch has ended */
	struct cb_called_list adopted_called; /* likewise */
	uint32_t adopted;		      /* its number */
	struct cb_twin_cost cost; /* auto */
	bool cost_reads;	  /* what the running cell does to memory */
	int64_t stopped_ns;	  /* when a take-over was ordered */
	unsigned settled;	  /* how often it was looked whether memory has come back */
	unsigned idle_deaths;	  /* since a cell or message has begun: of states that were back */
	bool fallen;		  /* in this take-over one was woken and failed */
	unsigned looks;		  /* at the one that serves: how many more, while its threads have had no turn */
	double look_used;	  /* seconds of a processor that it had used at the last of them */
	int64_t look_end;	  /* ns; it is looked at until then */
	bool copy_kills;	  /* in this take-over one died of that; or no other is tried for it */
	unsigned passed_over;	  /* in this take-over: states that did not work */
	char passed_why[192];	  /* the last of them */
	uint64_t passed_cell;	  /* what it had, as struct cb_twin has it */
	struct cb_twin woken;	  /* the one that took over, as it was; without ends and comms */
	uint32_t before_copy;	  /* the last number before it was copied in its turn */
	int64_t confirmed_ns;	  /* when it was last said that a state is back; 0 = something has begun since */
	unsigned silent;	  /* how many of them by silence */
	double duration_s;	  /* of the last one: how long the guest stood still */
	char coming_name[CB_CHECKPOINT_NAME]; /* of the one that came or did not come last */

	/* of the last take-over */
	int64_t restored_to;
	struct cb_buf undone; /* JSON array of numbers */
	struct cb_undo_log_undone undid;
	/* the same of this one and those before it of which nobody was told; and of those before it alone */
	int64_t untold_to, untold_before;
	struct cb_buf untold;
	struct cb_undo_log_undone untold_undid;
	struct cb_buf calls;  /* likewise completed calls of host tools of cells that are undone or lost; or empty */
	char calls_text[320]; /* the same, "; what host tools did …" */
	char outcome[1792];   /* "all variables are as they were before cell [3]; …" */
};

/* Copies of the state that run beside the main line. */
#define CB_BRANCHES_MAX 200 /* at one time; the rest of CB_TWINS_MAX is for twins with and without names */
#define CB_BRANCHES_ENDED 256
#define CB_BRANCH_PARENTS 16
#define CB_BRANCH_FRAMES_MAX (256u << 20) /* bytes of frames that are coming in, of all branches */

struct cb_branch {
	struct cb_shell shell;	 /* first: its ops find the branch by it. id "": deleted */
	struct cb_python python; /* number: the twin's */
	struct cb_transactions *all;
	enum cb_branch_state { CB_BRANCH_WAKING, CB_BRANCH_UP, CB_BRANCH_ENDING } state;
	struct cb_header *asked;       /* the request for it; owned */
	bool served;		       /* it was up once: who asked for it has its id */
	char from[CB_CHECKPOINT_NAME]; /* "" = the state as it was */
	double created;
	int64_t count;
	uint64_t cell;		       /* where it left the main line, as struct cb_twin has it */
	struct cb_undo_log_count live; /* and */
	struct cb_undo_log ran;	       /* since then: it may be adopted, and that be undone */
	struct cb_called_list called;  /* by that */
	struct cb_guest_parent parent[CB_BRANCH_PARENTS];
	struct cb_comms comms; /* those opened in it */
	struct cb_comms had;   /* those of the state that it was made of: the main line's, until it is adopted */
	uint64_t comm_told;    /* id of the request under which it was said that others are dropped */
	char why[256];	       /* it is to end for; empty = it ended by itself */
	bool mute;	       /* it broke the protocol: not heard any more */
	bool unread;	       /* its wire is not read any more */
	int64_t deadline;      /* to wake, or to end after its wire is closed; 0 = none */
	struct cb_oom_count oom; /* of the jail when the cell began */
};

struct cb_branches {
	struct cb_branch *branch[CB_BRANCHES_MAX]; /* owned; NULL = free */
	struct cb_load load;
	struct {
		char id[40], why[160];
	} ended[CB_BRANCHES_ENDED]; /* the latest that ended unasked */
	size_t last_ended;
	struct cb_link_room room;
	int epoll_fd; /* all their channels: one source for the loop, however many there are */
	int slot, timer, resume_timer;
	int64_t look_at; /* at CPU time and memory; 0 = not yet asked for */
};

/* Memory of the jail: what is given up when it is short. */
struct cb_memory_watch {
	int timer; /* while cells run: the next look */
	bool armed;
	uint64_t used;	   /* as the last look found it */
	int64_t freed_ms;  /* monotonic: a state was given up, or a twin took over: older looks saw what is gone */
	unsigned given_up; /* states that the present cell has cost */
	bool none_left;	   /* the state before it is one of them */
	char note[256];	   /* given up while no cell ran: the next one says so */
};

struct cb_transactions {
	struct cb_loop *loop;
	const struct cb_policy *policy;
	struct cb_jupyter *jupyter;
	struct cb_records *records;
	struct cb_guest *guest;
	struct cb_shells *shells;
	struct cb_workspace *workspace;
	struct cb_broker_queue *queue;
	struct cb_twins twins;
	struct cb_branches branches;
	struct cb_memory_watch memory;
	struct cb_checkpoints checkpoints;
};
