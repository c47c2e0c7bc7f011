"""What a zygote finds out of its threads before it serves, and how many it serves at once. As in test_zygote.py there
is no jail."""

import signal
import socket
import struct
from pathlib import Path

import psutil
from test_copier import await_true, library  # noqa: F401 (a fixture)
from test_zygote import DEADLINE, HELLO, TELL, new_zygote, warm_guest_dir, zygote  # noqa: F401 (fixtures)

LOADED = "import ctypes\nc = ctypes.CDLL(%r)\nbegun = c.%s\n"


def test_a_thread_that_does_not_stop(new_zygote, library, tmp_path):  # noqa: F811
    """Python does not count it. Each copy would begin with a stop of all threads, and none would be made."""
    (tmp_path / "never_stops.py").write_text(LOADED % (str(library), "begin_to_be_deaf()"))
    unfit = new_zygote("json,never_stops", path=[tmp_path])
    assert unfit.process.wait(DEADLINE) == 3
    assert unfit.said == "-never_stops leaves a thread running that can't be stopped, nor copied. Preload without it\n"
    assert unfit.stderr == ""


# As on a Linux that does not say where a thread's number is cleared (without CONFIG_CHECKPOINT_RESTORE).
DOES_NOT_SAY = """
import ctypes, errno, os, struct
call = 157 if os.uname().machine == "x86_64" else 167  # prctl
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16), (0x15, 0, 1, 40)]  # PR_GET_TID_ADDRESS
steps += [(0x06, 0, 0, 0x50000 | errno.EINVAL), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in steps))
program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, ctypes.get_errno()
"""


def test_a_process_that_can_not_be_copied(new_zygote, tmp_path):  # noqa: F811
    """Whatever the reason: each start would meet it."""
    (tmp_path / "does_not_say.py").write_text(DOES_NOT_SAY)
    unfit = new_zygote("does_not_say", path=[tmp_path])
    assert unfit.process.wait(DEADLINE) == 3
    assert unfit.said == "-after does_not_say this process can't be copied: Invalid argument\n"


def test_threads_that_stop_go_on(new_zygote, library, tmp_path):  # noqa: F811
    """Also a busy one: it is at work beside a zygote that waits."""
    (tmp_path / "has_threads.py").write_text(LOADED % (str(library), "begin_to_look(0)"))
    fit = new_zygote("has_threads", path=[tmp_path])
    assert (fit.said, fit.stderr) == ("+", "")
    assert fit.tell()["preloaded"] == "has_threads"
    process = psutil.Process(fit.process.pid)
    before = sum(process.cpu_times()[:2])
    await_true(lambda: sum(process.cpu_times()[:2]) > before + 0.05)  # s


def test_many_that_come_at_once(zygote):  # noqa: F811
    """Nobody who starts a kernel waits to connect: where there is no place for 256 it starts cold."""
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    zygote.process.send_signal(signal.SIGSTOP)
    many = []
    for _ in range(min(256, most)):
        many.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        many[-1].setblocking(False)
        many[-1].connect(zygote.address)
        many[-1].send(struct.pack("=9I", TELL, 1, *[0] * 7))
    zygote.process.send_signal(signal.SIGCONT)
    for each in many:
        each.settimeout(DEADLINE)
        assert HELLO.unpack_from(each.recv(1 << 17))[0] == 1 and each.recv(1 << 16)
        each.close()
