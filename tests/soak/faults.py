"""Sixty kinds of fault and more, and what the session must be like after each.

Role: cells, as text, for tests/soak/soak. Invariants: the names that SETUP of world.py has made are whole when a fault
begins; what a fault leaves behind without ending Python is put right by its cure. Callers: session.py.
"""

from dataclasses import dataclass, field

# What the fault ends in: Python is gone, and with it the cell; the cell has an error but all that it did stays; it is
# ok; or one of these, as chance has it.
DIES, RAISES, OK, ANY = "dies", "raises", "ok", "any"
UNDO = "undo"  # a cure: back to before the cell, and a new Python where that can't be had
SOON = {"cellblock": {"timeout": 1}}  # for what may be stopped before it has begun, as on a busy machine
SOON_CPU = {"cellblock": {"cpu": 1}}
LATER = {"cellblock": {"timeout": 10}}  # for what must have begun, and uses no processor
DIED = ("KernelDiedError",)
# of all children, those of faults before among them, which would stay
REAP = (
    "for each in open('/proc/thread-self/children').read().split(): os.kill(int(each), 9)\n"
    "try:\n    while True: os.waitpid(-1, 0)\nexcept ChildProcessError: pass"
)
MANY = 4  # of each thing that must not fill the jail up


@dataclass(frozen=True)
class Fault:
    name: str
    code: str
    end: str
    enames: tuple = ()  # () = any
    cure: str = ""
    about: dict = field(default_factory=dict)  # the request's metadata
    more: dict = field(default_factory=dict)  # the request's content
    takes_all: bool = False  # the states that are kept go with it: it may be lost
    forks: bool = False  # no copy is made while it lasts


TABLE = []


def fault(name, code, end, enames=(), cure="", **more):
    TABLE.append(Fault(name, code, end, (enames,) if isinstance(enames, str) else enames, cure, **more))


def signals():
    for each in ("HUP", "ILL", "TRAP", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "ALRM", "STKFLT", "VTALRM"):
        fault(f"SIG{each}", f"os.kill(os.getpid(), signal.SIG{each}); time.sleep(600)", DIES, DIED)
    for each in ("PROF", "IO", "PWR", "SYS", "XCPU", "ABRT", "QUIT", "STOP"):
        fault(f"SIG{each}", f"os.kill(os.getpid(), signal.SIG{each}); time.sleep(600)", DIES, DIED)
    fault("SIGTERM", "signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15); time.sleep(600)", DIES, DIED)
    for each in ("PIPE", "XFSZ", "CHLD", "CONT", "WINCH", "URG"):
        fault(f"SIG{each}", f"os.kill(os.getpid(), signal.SIG{each})", OK)
    for each in ("TSTP", "TTIN", "TTOU"):  # nobody stops an orphaned process group
        fault(f"SIG{each}", f"os.kill(os.getpid(), signal.SIG{each})", ANY)
    fault("a thread's SIGSEGV", "signal.pthread_kill(threading.get_ident(), 11); time.sleep(600)", DIES, DIED)
    fault("alarm", "signal.alarm(1); time.sleep(600)", DIES, DIED)
    fault("timer", "signal.setitimer(signal.ITIMER_PROF, 0.05)\nwhile True: pass", DIES, DIED)
    fault("processor time", "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass", DIES, DIED)


def ends():
    fault("segfault", "ctypes.string_at(0)", DIES, DIED)
    fault("abort", "os.abort()", DIES, DIED)
    fault("exit 0", "os._exit(0)", DIES, DIED)
    fault("exit 3", "print('last words', flush=True); os._exit(3)", DIES, DIED)
    fault("exit of a thread", "threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(600)", DIES, DIED)
    fault("exit of C", "ctypes.CDLL(None).exit(5)", DIES, DIED)
    fault("faulthandler", "faulthandler.enable(); faulthandler._sigsegv()", DIES, DIED)
    fault("faulthandler later", "faulthandler.dump_traceback_later(0.1, exit=True); time.sleep(600)", DIES, DIED)
    fault("exec", "os.execv('/bin/true', ['true'])", DIES)
    fault("exec that stays", "os.execv('/bin/sh', ['sh', '-c', 'while :; do :; done'])", DIES, about=SOON_CPU)
    fault("corrupt object", "ctypes.memset(id(a), 0xff, 64); print(a)", DIES)
    fault("corrupt heap", "m = ctypes.CDLL(None); m.free(ctypes.c_void_p(id(root) + 8)); os.abort()", DIES)
    fault("stack", "l = []\nfor i in range(10**6): l = [l]\nsys.setrecursionlimit(10**9); repr(l)", ANY, cure=UNDO)
    fault("the wire", "os.write(3, bytes(64)); time.sleep(600)", DIES)
    fault("half a frame", "os.write(3, b'x')\nwhile True: pass", DIES, about=SOON_CPU)
    fault("descriptors 0 to 9", "os.closerange(0, 10)\nwhile True: pass", DIES, about=SOON_CPU)
    fault("all descriptors", "os.closerange(0, 1000); os._exit(0)", DIES)
    fault("seccomp", "ctypes.CDLL(None).prctl(22, 1, 0, 0, 0); time.sleep(600)", ANY, about=SOON, cure=UNDO)
    fault("kills all", "os.kill(-1, 9)", ANY, takes_all=True)
    fault("kills all, and itself", "subprocess.run(['sh', '-c', 'kill -9 -1']); os.abort()", DIES, takes_all=True)
    fault("stops all", "try: os.kill(-1, signal.SIGSTOP)\nfinally: os.kill(os.getpid(), 9)", DIES, takes_all=True)
    fault("a finalizer", "class D:\n    def __del__(self): os._exit(6)\nd = D(); del d", DIES, DIED)
    fault("a repr", "class D:\n    def __repr__(self): os._exit(6)\nD()", DIES, DIED)


def limits():
    swallow = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    fault("time, sleeping", "time.sleep(600)", RAISES, "CellTimeoutError", about=LATER)
    fault("time, computing", "while True: pass", RAISES, "CellTimeoutError", about=LATER)
    fault("time, deaf", swallow + "while True: pass", DIES, "CellTimeoutError", about=SOON_CPU)
    fault("time, in C", "sum(range(10**13))", DIES, "CellTimeoutError", about=SOON_CPU)
    fault("processor time, limited", "while True: pass", RAISES, "CellTimeoutError", about=SOON_CPU)
    fault("processor time, deaf", swallow + "while True: pass", DIES, "CellTimeoutError", about=SOON_CPU)
    blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass"
    # a thread of an earlier fault may take the signal, for all
    fault("blocked signals", blocked, ANY, "CellTimeoutError", about=SOON)
    bomb = "while True:\n    try: os.fork()\n    except OSError: pass"
    fault("fork bomb", swallow + bomb, DIES, ("CellTimeoutError", "CellMemoryError"), about=SOON_CPU)
    tired = "pid = os.getpid()\nwhile os.getpid() == pid: os.fork()\nos._exit(0)"
    fault("fork bomb that gives up", tired, ANY, forks=True, cure=REAP)
    shared = "import mmap\nm, block = mmap.mmap(-1, 1 << 31), b'1' * (1 << 20)\nfor i in range(1 << 11): m.write(block)"
    shared += "\nwhile True: time.sleep(1)"  # the watchdog may be late to look
    fault("memory", shared, DIES, "CellMemoryError")
    fault("one huge object", "huge = bytearray(8 << 30)", RAISES, "MemoryError")
    fault("objects", "huge = []\nwhile True: huge.append(bytearray(1 << 20))", ANY, cure="huge = None")
    many = "try:\n    for _ in range(200): threading.Thread(target=halt.wait, daemon=True).start()\n"
    fault("threads", "halt = threading.Event()\n" + many + "finally: halt.set()", RAISES, "RuntimeError")
    fault("files", "def take():\n    k = [open('/dev/null') for _ in range(10**6)]\ntake()", RAISES, "OSError")
    fault("sockets", "def take():\n    k = [socket.socketpair() for _ in range(10**6)]\ntake()", RAISES, "OSError")
    full = "with tempfile.TemporaryFile() as f:\n    while True: _ = f.write(bytes(1 << 20))"
    fault("disk full", full, RAISES, "OSError")
    names = "with tempfile.TemporaryDirectory() as d:\n    for i in range(10**6): open(f'{d}/{i}', 'w').close()"
    fault("inodes", names, RAISES, "OSError")
    fault("output", "for i in range(600): print('x' * 10000)", OK)
    fault("displays", "for i in range(600): display({'text/plain': 'x' * 10000}, raw=True)", OK)
    fault("one huge line", "print('x' * (6 << 20))", OK)


def python():
    fault("deep recursion", "def deep(): deep()\ndeep()", RAISES, "RecursionError")
    fault("SystemExit", "raise SystemExit(3)", RAISES, "SystemExit")
    fault("KeyboardInterrupt", "raise KeyboardInterrupt", RAISES, "KeyboardInterrupt")
    fault("BaseException", "class E(BaseException): pass\nraise E", RAISES, "E")
    fault("an error without words", "class E(Exception):\n    def __str__(self): 1 / 0\nraise E", RAISES)
    fault("syntax", "for", ANY)
    fault("sys.modules", "kept_modules = dict(sys.modules); sys.modules.clear()", ANY, cure=UNDO, about=SOON)
    fault("builtins", "for k in list(vars(builtins)): delattr(builtins, k)", ANY, cure=UNDO, about=SOON)
    fault("print, open", "builtins.open = builtins.print = builtins.repr = None", ANY, cure=UNDO, about=SOON)
    fault("__import__", "builtins.__import__ = None", ANY, cure=UNDO, about=SOON)
    fault("stdout gone", "sys.stdout = sys.stderr = None", ANY, cure=UNDO, about=SOON)
    fault("stdout closed", "sys.stdout.close()", ANY, cure=UNDO, about=SOON)
    fault("excepthook", "sys.excepthook = sys.displayhook = None\n1", ANY, cure=UNDO, about=SOON)
    fault("trace", "sys.settrace(lambda *_: 1 / 0)\ndef f(): pass\nf()", ANY, cure="sys.settrace(None)")
    fault("loop closed", "asyncio.get_event_loop().close()", ANY, cure=UNDO, about=SOON)
    fault("loop stopped", "asyncio.get_running_loop().stop()", ANY, cure=UNDO, about=SOON)
    fault("gc", "gc.disable()", OK, cure="gc.enable()")
    fault("gc frozen", "gc.freeze()", OK, cure="gc.unfreeze()")
    fault("SIGINT ignored", "signal.signal(2, signal.SIG_IGN)", OK, cure="signal.signal(2, signal.default_int_handler)")
    fault("a hook at exit", "import atexit; _ = atexit.register(time.sleep, 600)", OK)
    hook = "gate = threading.Lock(); _ = gate.acquire()\nos.register_at_fork(before=gate.acquire)"
    fault("a hook at forks", hook, OK, cure=UNDO)
    fault("a hook after forks", "os.register_at_fork(after_in_parent=lambda: 1 / 0)", OK)
    fault("threads that go on", "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", OK)
    spin = "threading.Thread(target=lambda: [time.sleep(0.01) for _ in range(100)], daemon=True).start()"
    fault("a thread that works", spin, OK)
    fault("pool", "with concurrent.futures.ThreadPoolExecutor(2) as p: _ = list(p.map(abs, range(9)))", OK)
    fault("result", "class R:\n    def __repr__(self): 1 / 0\nR()", ANY)
    fault("a task without an end", "task = asyncio.ensure_future(asyncio.sleep(600))", OK)
    dead = "open('/tmp/dead.py', 'w').write('1 / 0'); sys.path.insert(0, '/tmp'); import dead"
    fault("a module that fails", dead, RAISES)
    fault("name of IPython", "get_ipython = None", OK, cure="del get_ipython")


def system():
    gone = "os.mkdir('/tmp/gone'); os.chdir('/tmp/gone'); os.rmdir('/tmp/gone')"
    fault("folder deleted", gone, OK, cure="{folder}")
    fault("the parent", "os.kill(os.getppid(), 9)", ANY)
    fault("process 1", "os.kill(1, 9)", ANY)
    for name, low in (("NOFILE", 3), ("NPROC", 0), ("FSIZE", 0), ("STACK", 1 << 16), ("DATA", 1 << 20)):
        back = f"resource.setrlimit(resource.RLIMIT_{name}, old)"
        code = f"old = resource.getrlimit(resource.RLIMIT_{name})\n"
        code += f"resource.setrlimit(resource.RLIMIT_{name}, ({low}, old[1]))"
        fault(f"limit {name}", code, ANY, cure=back, forks=True)
    fault("nice", "_ = os.nice(19)", OK)
    fault("core", "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()", DIES)
    fault("a session of its own", "os.setsid()", ANY)
    fault("ptrace", "ctypes.CDLL(None).ptrace(0, 0, 0, 0)", ANY)
    fault("undumpable", "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)", ANY)
    fault("dies with its parent", "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)", ANY)
    fault("chroot", "os.chroot('/tmp')", RAISES)
    fault("another user", "os.setuid(1)", ANY)
    fault("network", "socket.create_connection(('127.0.0.1', 9), 1)", RAISES)
    fault("priority", "os.sched_setaffinity(0, {0})", ANY)
    fault("children", f"for _ in range({MANY}): subprocess.Popen(['sleep', '600'], start_new_session=True)", OK)
    fault("a fork that stays", "if os.fork() == 0: os.setsid(); time.sleep(600); os._exit(0)", OK)
    fault("a fork that comes back", "if os.fork() == 0: raise SystemExit", ANY)
    fault("a child kills it", "_ = subprocess.run(['sh', '-c', 'kill -9 $PPID; sleep 600'])", DIES, DIED)
    fault("vfork", "_ = subprocess.run(['true'])", OK)
    fault("descriptor 0", "try: os.close(0)\nexcept OSError: pass  # closed before", OK)
    fault("descriptor 1", "os.close(1)", ANY, cure=UNDO)
    fault("descriptor 2", "os.close(2)", ANY, cure=UNDO)


def frontend():
    fault("binary output", "sys.stdout.flush(); _ = os.write(1, bytes(range(256)) * 40)", OK)
    fault("binary output of Python", "_ = sys.stdout.buffer.write(bytes(range(256)) * 40)", ANY)
    fault("surrogates", "print('\\ud800', '\\0', '\\x1b[31m')", ANY)
    fault("input refused", "input('?')", RAISES, "StdinNotImplementedError")
    fault("input without an answer", "input('?')", RAISES, "KeyboardInterrupt", more={"allow_stdin": True})
    fault("password", "import getpass; getpass.getpass()", RAISES, "StdinNotImplementedError")
    opened = "from ipykernel.comm import Comm\nComm(target_name='soak', data={'n': 1}).close()"
    fault("comms", opened, OK)
    fault("a comm that stays", "from ipykernel.comm import Comm\ncomm = Comm(target_name='soak')", OK)
    fault("display updates", "h = display(1, display_id=True)\nfor i in range(50): h.update(i)", OK)
    fault("clear", "from IPython.display import clear_output\nfor i in range(50): print(i); clear_output()", OK)
    fault("silent", "1 / 0", RAISES, "ZeroDivisionError", more={"silent": True, "store_history": False})
    fault("not stored", "1", OK, more={"store_history": False})
    fault("not stored, dies", "os.abort()", DIES, DIED, more={"store_history": False})
    fault("silent, dies", "os.abort()", DIES, DIED, more={"silent": True, "store_history": False})
    fault("expressions", "1", OK, more={"user_expressions": {"x": "1 / 0", "y": "n", "z": "("}})
    fault("expressions that die", "1", DIES, more={"user_expressions": {"x": "os.abort()"}})
    fault("a magic that is none", "%no_such_magic", ANY)
    fault("shell", "!exit 3", OK)
    fault("nothing", "", OK)


for group in (signals, ends, limits, python, system, frontend):
    group()
