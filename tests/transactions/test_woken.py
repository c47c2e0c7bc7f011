"""A state that comes back but does not work is not called restored: the one before it takes over, and that is said.

A library in C does what gRPC's and others' do: it bears that its process is copied, but not that the copy goes on.
"""

import re
import subprocess

import pytest

from branches import branch, run_in, start_in
from kernels import BY_FORK

pytestmark = pytest.mark.cellblock_only("no other kernel does this")

# A twin is the second generation of copies. Its first thread has blocked all signals from before its birth until it is
# woken; only then it has the old name again.
LIBRARY = r"""
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int generation;

static char *text_of(const char *path)
{
    static char text[4096];
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    close(fd);
    return text;
}

static int sleeps(void)
{
    char *blocked = strstr(text_of("/proc/self/status"), "SigBlk:");

    return blocked == NULL || (strtoull(blocked + 7, NULL, 16) >> (SIGINT - 1) & 1) != 0;
}

static void *later(void *unused)
{
    while (sleeps())
        usleep(1000);
    usleep(DELAY_US);
    abort();
    return unused;
}

static void before(void)
{
    if (generation == 2 && DELAY_US < 0 && strncmp(text_of("/proc/self/comm"), "cellblock-twin", 14) != 0)
        abort();
}

static void in_child(void)
{
    pthread_t thread;

    if (++generation == 2 && DELAY_US >= 0)
        pthread_create(&thread, NULL, later, NULL);
}

void load(void)
{
    pthread_atfork(before, NULL, in_child);
}
"""
# Copied with its threads it has no hooks; one of its threads finds that the process is another one.
LIBRARY_WITH_THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pid_t process;

static void *look(void *unused)
{
    struct timespec now, end;

    while (getpid() == process)
        usleep(1000);
    if (DELAY_US < 100000)
        usleep(DELAY_US);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += DELAY_US < 100000 ? 0 : DELAY_US * 1000L;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - end.tv_sec) * 1000000000L + now.tv_nsec < end.tv_nsec);
    abort();
    return unused;
}

void load(void)
{
    pthread_t thread;

    process = getpid();
    pthread_create(&thread, NULL, look, NULL);
}
"""
LOAD = "import ctypes, os, sys, types; sys.modules['grpc'] = types.ModuleType('grpc')\n"  # whose threads they may be
LOAD += "bad = ctypes.CDLL('./bad.so'); bad.load()"
DIE = "os._exit(3)"
# 11: libc's abort() ends in a halt instruction where its signal has not ended the process (seen under load).
ABORTED = r"did not work when it was woken \(Python was killed by signal (6|11) "
# The next copy aborts, as with gRPC's server; or a thread that was started in the copy does, at once or soon, or after
# more work than what a state is looked at for.
KINDS = {"next copy, by fork": -1, "thread at once, by fork": 0, "thread soon, by fork": 20000}
KINDS |= {"thread at once": 0, "thread soon": 20000, "thread at work": 450000}


THREADS = """
import ctypes, os, sys, types
sys.modules['polars'] = types.ModuleType('polars')  # the threads have no names of their own
libc = ctypes.CDLL(None)
run = ctypes.cast(libc.sem_wait, ctypes.c_void_p)  # which no signal ends, as it does pause
thread, semaphore = ctypes.c_ulong(), ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
for _ in range(3):
    libc.pthread_create(ctypes.byref(thread), None, run, semaphore)
"""


# A thread does it as soon as it finds itself in a copy.
ENDS = """
import os, threading, time

def end(process):
    while os.getpid() == process:
        time.sleep(0.001)
    HOW

threading.Thread(target=end, args=(os.getpid(),), daemon=True).start()
"""


@pytest.mark.parametrize("why", ["Python exited with status 4", "unknown message type"])
@pytest.mark.parametrize("way", ["crash", "rollback"])
def test_the_words(start, way, why):
    """Of what the cell did, of a rollback, of the state that was woken."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("x = 5").ok
    assert c.run(ENDS.replace("HOW", "os._exit(4)" if "exited" in why else "os.write(3, bytes(40))")).ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    if way == "crash":
        failed = c.run(DIE)
        assert failed.about["state"] == "restored", failed
        told = failed.content["evalue"]
        assert told.startswith("Python exited with status 3; all variables are as they were before cell [2]"), told
    else:
        failed = c.request("cellblock_rollback_request", {"name": "a"})
        cause = "Python was stopped: the state that was asked for did not work when it was woken (%s" % why
        assert failed.content["evalue"].startswith(cause), failed
        told = c.run("pass").text("stderr")
        assert cause in told and "all variables are as they were before cell [2]" in told, told
    assert f"a later state did not work when it was woken ({why}" in told, told
    assert c.run("x").result == "5"


def test_files_are_those_of_the_state_that_works(start):
    """The woken one that did not had brought back its own."""
    c = start(args=["--set", "transactions.mode=always", "--set", "workspace.mode=overlay"]).client
    assert c.run("open('f', 'w').write('1')").ok
    assert c.run(ENDS.replace("HOW", "os._exit(4)") + "open('f', 'w').write('2')").ok
    failed = c.run("open('f', 'w').write('3')\n" + DIE)
    told = failed.content["evalue"]
    assert "all variables and files are as they were before cell [2]; cells [2] to [3] are undone" in told, told
    assert "a later state did not work when it was woken (Python exited with status 4)" in told, told
    assert (failed.about["restored_to"], failed.about["undone"]) == (1, [2, 3]), failed.about
    assert c.run("open('f').read()").result == "'1'"
    failed = c.run("import os; open('f', 'w').write('4')\n" + DIE)
    assert failed.about["undone"] == [failed.content["execution_count"]], failed
    assert c.run("open('f').read()").result == "'1'"


# What aborts in a copy as soon as it is used, and not before.
USED = """
process = os.getpid()

def use():
    return 'used' if os.getpid() == process else os.abort()
"""


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_the_next_cell_dies_of_the_state(start, mode):
    """That is taken for the cell's own doing: each time it alone is undone. The way out is to undo what cells did."""
    c = start(args=["--set", f"transactions.mode={mode}"]).client
    assert c.run("import os; x = [1]").ok
    assert c.run(USED + "x.append(2)").ok and c.run("use()").result == "'used'"
    assert c.run("x.append(3); " + DIE).about["state"] == "restored"
    for _ in range(2):
        failed = c.run("x.append(4); use()")
        number = failed.content["execution_count"]
        assert (failed.about["state"], failed.about["undone"]) == ("restored", [number]), failed
        assert f"all variables are as they were before cell [{number}]" in failed.content["evalue"], failed
        assert "when it was woken" not in failed.content["evalue"], failed
        assert failed.about["restored_to"] == number - 1
    assert c.run("x, process == os.getpid()").result == "([1, 2], False)"


def test_undo_leads_out_of_a_state_that_kills_each_cell(start):
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("import os; x = [1]").ok
    assert c.run(USED + "x.append(2)").ok
    for code in (DIE, "use()", "use()"):
        assert c.run(code).about["state"] == "restored"
    undone = c.run("%undo")
    assert (undone.about["state"], undone.about["restored_to"]) == ("restored", 1), undone
    assert c.run("x, 'use' in globals()").result == "([1], False)"
    assert c.run(USED + "use()").ok and c.run("use()").result == "'used'"


# A subshell's thread comes to say something while the state is kept, and says it where that goes on.
SAYS = """
import os, sys, time
from _thread import get_ident

class Lock:
    def __init__(self, lock):
        self.lock, self.thread, self.process, self.said = lock, get_ident(), os.getpid(), False

    def acquire(self):
        while get_ident() == self.thread and os.getpid() == self.process:
            if not self.said:
                self.said = True
                os.write(1, b"is about to")
            time.sleep(0.001)
        return self.lock.acquire()

    def release(self):
        self.lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()

wire = sys.stdout._output.wire
wire._lock = Lock(wire._lock)
"""


@pytest.mark.parametrize("what", ["input()", "1"])
def test_what_a_cell_was_about_to_say(start, what):
    """Its cell is undone, and is not known any more."""
    c = start(args=["--set", "transactions.mode=always", "--set", "timeout.grace=0.2"]).client
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("x = 5").ok
    beside = c.start(SAYS + what, allow_stdin=True, header=c.header("execute_request", subshell_id=where))
    c.wait("iopub", lambda m: m.type == "stream" and "is about to" in m.content["text"])
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    assert c.run("wire._lock.process = 0").ok
    if what == "input()":
        c.wait("stdin", lambda m: m.type == "input_request")
        header = c.header("interrupt_request", subshell_id=where)
        c.request("interrupt_request", {}, channel="control", header=header)
    assert c.finish(beside).ok == (what != "input()")
    back = c.request("cellblock_rollback_request", {"name": "a"})
    assert back.content["status"] == "ok", back
    assert c.run("x").result == "5"
    header = c.header("execute_request", subshell_id=where)
    assert c.finish(c.start("x + 1", header=header)).result == "6"


# In the copy other threads go on before it is ready, as they do where one of them had asked for the interpreter's lock.
EARLY = """
import time
guest = get_ipython().guest
retire = guest.side.retire

def retire_late():
    guest.twins.copier.go_on()
    time.sleep(0.2)
    retire()

guest.side.retire = retire_late
"""


def test_threads_that_go_on_early(start):
    """The one that reads the side wire, whose end it sees, ends nothing but itself."""
    c = start(args=["--set", "transactions.mode=always"]).client
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    at = c.header("execute_request", subshell_id=where)
    assert c.finish(c.start("x = 5", header=at)).ok
    assert c.run(EARLY).ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    back = c.request("cellblock_rollback_request", {"name": "a"})
    assert back.content["status"] == "ok", back
    assert c.finish(c.start("x", header=c.header("execute_request", subshell_id=where))).result == "5"


# The thread that reads the side wire has a subshell's cell in hand while the state is kept.
IN_HAND = """
import os, time
x, go, process = [], False, os.getpid()
guest = get_ipython().guest
dispatch = guest.side._dispatch

def dispatch_late(*frame):
    os.write(1, b"in hand")
    while os.getpid() == process and not go:
        time.sleep(0.001)
    dispatch(*frame)

guest.side._dispatch = dispatch_late
"""


def test_a_cell_that_had_come_and_not_begun(start):
    """It is undone, and is not run where the state goes on."""
    c = start(args=["--set", "transactions.mode=always"]).client
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run(IN_HAND).ok
    beside = c.start("x.append(1)", header=c.header("execute_request", subshell_id=where))
    c.wait("iopub", lambda m: m.type == "stream" and "in hand" in m.content["text"])
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    assert c.run("go = True").ok
    assert c.finish(beside).ok and c.run("x").result == "[1]"
    back = c.request("cellblock_rollback_request", {"name": "a"})
    assert back.content["status"] == "ok", back
    assert c.finish(c.start("x.append(2)", header=c.header("execute_request", subshell_id=where))).ok
    assert c.run("x, sum(t.name.startswith('subshell') for t in __import__('threading').enumerate())").result == (
        "([2], 1)"
    )


def test_locks_of_what_is_undone(start):
    """A subshell's cell that waits, with a lock, where the state goes on: it ends at once and gives it back."""
    c = start(args=["--set", "transactions.mode=always", "--set", "timeout.grace=0.2"]).client
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("import threading\nlock, begun, never = threading.Lock(), threading.Event(), threading.Event()").ok
    code = "with lock:\n    begun.set()\n    never.wait()"
    beside = c.start(code, header=c.header("execute_request", subshell_id=where))
    assert c.run("begun.wait()").ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    header = c.header("interrupt_request", subshell_id=where)
    c.request("interrupt_request", {}, channel="control", header=header)
    assert not c.finish(beside).ok
    back = c.request("cellblock_rollback_request", {"name": "a"})
    assert back.content["status"] == "ok", back
    assert c.run("lock.acquire(timeout=60)").result == "True"


# A branch takes all processes that there may be, and leaves fewer than the main line had threads.
FILL = """
import os, time
while not os.path.exists("/tmp/ended"):
    time.sleep(0.001)
made = []
try:
    while True:
        made.append(os.fork())
        if made[-1] == 0:
            time.sleep(600)
except OSError:
    pass
for _ in range(8):
    pid = made.pop(); os.kill(pid, 9); os.waitpid(pid, 0)
open("/tmp/full", "w").close()
"""
BEGIN = """
import os, threading, time
end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(20)]
for each in threads: each.start()
"""
END = """
end.set()
for each in threads: each.join()
open("/tmp/ended", "w").close()
while not os.path.exists("/tmp/full"): time.sleep(0.001)
os._exit(3)
"""


@pytest.mark.parametrize("before", [True, False], ids=["a state before it", "none before it"])
def test_no_room_for_all_threads(start, before):
    """Of a state with threads all come back, or it does not."""
    sets = ["transactions.mode=always", "transactions.keep=%d" % (2 * before), "limits.pids=60"]
    c = start(args=[word for each in sets for word in ("--set", each)]).client
    assert c.run("x = [1]").ok
    where = branch(c)
    assert c.run(BEGIN + "x.append(2)").ok
    fills = start_in(c, where, FILL)
    failed = c.run(END)
    about, text = failed.about, failed.content["evalue"]
    assert "did not work when it was woken (Python exited with status 1" in text, text
    if before:
        assert c.finish(fills).ok and run_in(c, where, "len(made) > 5, x").result == "(True, [1])"
        assert (about["state"], about["restored_to"], about["undone"]) == ("restored", 1, [2, 3]), text
        assert c.run("x, 'threads' in globals()").result == "([1], False)"
    else:
        assert about["state"] == "lost" and "all variables are lost" in text, text
        assert c.run("1").result == "1"


def test_native_threads_come_back(start):
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("import os, threading; threading.Thread(target=threading.Event().wait, daemon=True).start()").ok
    assert c.run(THREADS).ok
    number = c.run("len(os.listdir('/proc/self/task'))").result
    assert "did not come back" not in c.run("os._exit(1)").content["evalue"]
    assert c.run("len(os.listdir('/proc/self/task'))").result == number


def test_native_threads_are_named(start):
    """Those of a library that Python does not know; its own, and the guest's, are not among them."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run(BY_FORK).ok
    assert c.run("import os, threading; threading.Thread(target=threading.Event().wait, daemon=True).start()").ok
    text = c.run("os._exit(1)").content["evalue"]
    assert "what did not come back: 1 thread;" in text and "hangs" not in text
    assert c.run(THREADS).ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    text = c.run("os._exit(1)").content["evalue"]
    assert "3 threads of polars did not come back: restart the kernel if it hangs" in text
    assert "did not come back" not in c.run("os._exit(1)").content["evalue"]
    back = c.request("cellblock_rollback_request", {"name": "a"}).content
    assert "3 threads of polars did not come back: restart the kernel if it hangs" in back["outcome"], back


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def work(kind, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "bad.c").write_text(LIBRARY if "fork" in kind else LIBRARY_WITH_THREADS)
    build = ["gcc", "-shared", "-fPIC", "-pthread", f"-DDELAY_US={KINDS[kind]}", "-o", "bad.so", "bad.c"]
    subprocess.run(build, cwd=folder, check=True)
    return folder


def test_the_state_before_takes_over(start, work, kind):
    c = start(args=["--set", "transactions.mode=always", "--set", "transactions.keep=2"], workspace=work).client
    assert c.run((BY_FORK if "fork" in kind else "") + "import os; x = []").ok and c.run("x.append(1)").ok
    assert c.run(LOAD + "; x.append(2)").ok
    failed = c.run(DIE)
    about, text = failed.about, failed.content["evalue"]
    assert "exited with status 3" in text, "what the cell did is not what the woken state did"
    assert "as they were before cell [3]; cells [3] to [4] are undone" in text
    assert re.search(ABORTED, text), text
    assert (about["state"], about["restored_to"], about["undone"]) == ("restored", 2, [3, 4])
    assert c.run("x").result == "[1]"
    failed = c.run(DIE)
    assert failed.about["undone"] == [failed.content["execution_count"]], failed.content
    assert c.run("x").result == "[1]"


def test_a_subshells_cell_is_told_what_came_back(start, work, kind):
    """Not before it is known to work; what waits behind it begins after that, and the main shell is told as well."""
    c = start(args=["--set", "transactions.mode=always", "--set", "transactions.keep=2"], workspace=work).client
    assert c.run((BY_FORK if "fork" in kind else "") + "import os; x = []").ok and c.run("x.append(1)").ok
    assert c.run(LOAD + "; x.append(2)").ok
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    cell, next_cell = (c.start(code, header=c.header("execute_request", subshell_id=where), stop_on_error=False)
                       for code in (DIE, "x"))
    failed = c.finish(cell)
    about, text = failed.about, failed.content["evalue"]
    words = "exited with status 3; all variables are as they were before cell [3]; cells [3] to [4] are undone"
    assert words in text, text
    assert re.search(ABORTED, text), text
    assert (about["state"], about["restored_to"], about["undone"]) == ("restored", 2, [3, 4])
    assert c.finish(next_cell).result == "[1]"
    told = c.run("x")
    assert told.result == "[1]" and "beside a subshell's cell, Python exited with status 3" in told.text("stderr"), told


def test_nothing_before_it(start, work, kind):
    """The only state that is left goes on without being copied, if that is what it dies of; else the error says why."""
    c = start(args=["--set", "transactions.mode=always", "--set", "transactions.keep=0"], workspace=work).client
    first = (BY_FORK if "fork" in kind else "") + "import os; x = [1]"
    for code in (first, LOAD, "y = 1", "z = 1"):
        assert c.run(code).ok
    failed = c.run(DIE)
    text = failed.content["evalue"]
    assert re.search(ABORTED, text), text
    if failed.about["state"] == "restored":
        assert c.run("x").result == "[1]"
    else:
        assert failed.about["state"] == "lost"
        assert c.run("1").result == "1"
