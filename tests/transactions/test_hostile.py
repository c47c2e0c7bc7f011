"""Cells that attack what brings the state back: pid 1's registry, the twins, their control sockets, the sweep.

Whatever they do, a cell that then fails is answered: its state is `restored`, or `lost` and said to be; the kernel is
alive, and the next cell runs. All of it is inside the jail: what is lost is the attacker's own.
"""

import pytest

from kernels import BY_FORK

pytestmark = pytest.mark.cellblock_only("transactions")

WORDS = {"restored": "all variables are as they were before cell", "lost": "all variables are lost"}
EITHER = ("restored", "lost")
RESTORED = ("restored",)

# What attackers need: the guest's own ends (children that os.fork makes have them no more), and who is a twin.
TOOLS = """
import os, signal, socket, struct, threading, time
def packets(fd): return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, os.dup(fd))
registry, twin_control = packets(6), packets(5)
def twins():
    # they lead sessions of their own
    others = [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]
    return [p for p in others if session(p) == p]
def session(p):
    try: return os.getsid(p)
    except ProcessLookupError: pass  # an older twin, which has been dropped
def to_twins(number):
    for p in twins():
        try: os.kill(p, number)
        except ProcessLookupError: pass  # an older one, which is being dropped
def apart(work):
    # in a session of its own, and no child of ours
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            try: work()
            finally: os._exit(0)
        os._exit(0)
    os.wait()
def controls():
    found = []
    for fd in sorted(map(int, os.listdir('/proc/self/fd'))):
        try: s = socket.socket(fileno=os.dup(fd))
        except OSError: continue
        if fd > 7 and s.family == socket.AF_UNIX and s.type == socket.SOCK_SEQPACKET: found.append(s)
        else: s.close()
    return found
say = struct.Struct('<II').pack
MACHINE = (234, 13) if os.uname().machine == 'x86_64' else (131, 134)  # the numbers of tgkill and rt_sigaction
"""
DIE = "\nos._exit(3)"

# name: (cells, the last of which dies; what may become of the state)
ATTACKS = {
    "a flood on the registry": (
        [
            "def flood():\n"
            "    while True: registry.send(struct.pack('<I', 4242))\n"
            "apart(flood); apart(flood)" + DIE
        ],
        RESTORED,
    ),
    "nothing, said on the registry": (["registry.send(b'')", "y = 1", DIE], RESTORED),
    "another process takes the number": (
        [
            "def forge():\n"
            "    while True:\n"
            "        for n in range(2, 12): registry.send(struct.pack('<I', n))\n"
            "        time.sleep(0.001)\n"
            "apart(forge)",
            "y = 1",
            DIE,
        ],
        EITHER,
    ),
    "wrong words on a twin's control socket": (
        [
            BY_FORK,
            "def forge():\n    for s in controls():\n        s.send(say(16, 3)); s.send(b''); s.send(bytes(99))\n"
            "os.register_at_fork(before=forge)",
            "y = 1",
            "y = 2",
            "y = 3",
            DIE,
        ],
        EITHER,
    ),
    "born twice": (
        [
            BY_FORK,
            "def forge():\n    for s in controls(): s.send(say(16, 3))\nos.register_at_fork(after_in_child=forge)",
            DIE,
        ],
        EITHER,
    ),
    "a control socket passed around": (
        [
            BY_FORK,
            "kept = []\n"
            "def keep():\n"
            "    kept.extend(controls())\n"
            "    for s in kept: socket.send_fds(registry, [b'1234'], [s.fileno()]); s.set_inheritable(True)\n"
            "os.register_at_fork(before=keep)"
            if hasattr(__import__("socket"), "send_fds")
            else "",
            "y = 1",
            "def read():\n"
            "    while True:\n"
            "        for s in kept: s.recv(99)\n"
            "apart(read)",
            DIE,
        ],
        EITHER,
    ),
    "what lies on the control socket is stolen": (
        [
            "def steal():\n"
            "    while True: twin_control.recv(99)\n"
            "threading.Thread(target=steal, daemon=True).start()",
            "y = 1",
            "y = 2",
            "y = 3",
            DIE,
        ],
        EITHER,
    ),
    "the twin dies as it is made": (
        [BY_FORK, "os.register_at_fork(after_in_child=lambda: os._exit(9))", "y = 1", DIE],
        EITHER,
    ),
    "signals by which threads stop, all the time": (
        [
            "def shoot():\n"
            "    while True:\n"
            "        for t in os.listdir('/proc/self/task'): signal.pthread_kill(main, 0); tgkill(int(t), 33)\n"
            "import ctypes; main = threading.main_thread().ident; call = ctypes.CDLL(None).syscall\n"
            "def tgkill(thread, number): call(MACHINE[0], os.getpid(), thread, number)\n"
            "threading.Thread(target=shoot, daemon=True).start(); time.sleep(0.2)" + DIE,  # or of that
        ],
        EITHER,
    ),
    "the signal by which threads stop is ignored": (
        [
            "import ctypes; call = ctypes.CDLL(None).syscall; ignore = (ctypes.c_ulong * 4)(1, 0, 0, 0)\n"
            "def insist():\n"
            "    while True: call(MACHINE[1], 33, ignore, None, 8)\n"
            "threading.Thread(target=insist, daemon=True).start()",
            "y = 1",
            "y = 2",
            DIE,
        ],
        EITHER,
    ),
    "the idle twins are killed": (["to_twins(9)" + DIE], ("lost",)),
    "the twin dies as it wakes": (["to_twins(signal.SIGTERM)" + DIE], EITHER),
    "the twins are stopped": (["to_twins(signal.SIGSTOP)" + DIE], RESTORED),
    "forks and SIGCONT race the sweep": (
        [
            "def race():\n"
            "    while True:\n"
            "        try:\n"
            "            if os.fork() == 0: os.setsid()\n"
            "        except OSError: pass\n"
            "        for p in filter(str.isdigit, os.listdir('/proc')):\n"
            "            try: os.kill(int(p), signal.SIGCONT)\n"
            "            except OSError: pass\n"
            "apart(race); time.sleep(0.3)" + DIE
        ],
        EITHER,
    ),
    "half a frame": (["y = 1", "os.write(3, struct.pack('<IIIIQII', 3, 60000, 0, 0, 0, 0, 1) + b'x')"], RESTORED),
    "children keep all descriptors": (
        [
            "ends = [os.dup(fd) for fd in (1, 2, 3, 4, 5, 6, 7)]\n"
            "def hold():\n"
            "    time.sleep(4242)\n"
            "for _ in range(3): apart(hold)",
            "y = 1",
            DIE,
        ],
        RESTORED,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_ends_with_a_word(start, name):
    cells, states = ATTACKS[name]
    args = ["transactions.mode=always", "limits.pids=60", "timeout.grace=0.3"]
    c = start(args=[word for each in args for word in ("--set", each)]).client
    assert c.run(TOOLS).ok and c.run("x = [1]").ok
    for code in cells[:-1]:
        cell = c.run(code)
        assert cell.ok, cell
    failed = c.run(cells[-1])
    assert failed.content["status"] == "error", failed.content
    state = failed.about["state"]
    assert state in states, failed.content
    assert WORDS[state] in failed.content["evalue"], failed.content
    if state == "restored":
        assert c.run("x").result == "[1]"
    assert c.run("6*7").result == "42"
    assert c.kernel.alive()
    if state == "restored":  # and not only once
        again = c.run("import os; os._exit(1)")
        assert again.about["state"] in EITHER and WORDS[again.about["state"]] in again.content["evalue"]
        assert c.run("6*7").result == "42"
