"""More attacks, of the same form as those in attacks.py, which takes them in: the kernel's interfaces, what leaks by
/proc and /sys, pid 1, other namespaces, odd sockets, marks on files.

`where` has one kind more: "victim" = below a shell whose child the attack is, as a cell is pid 1's. What an attack
makes outside it takes away again.
"""

# in a child, for nobody can take one off again
OWN_FILTER = (
    "r = os.fork()\nif r == 0:\n    libc.prctl(38, 1, 0, 0, 0)\n"
    "    f = ctypes.create_string_buffer(struct.pack('<HBBI', 6, 0, 0, 0x7fff0000) * 4000)\n"
    "    p = ctypes.create_string_buffer(struct.pack('<HxxxxxxQ', 4000, ctypes.addressof(f)))\n"
    "    os._exit(7 if {call} == 0 else 0)\n"
    "won = os.waitstatus_to_exitcode(os.waitpid(r, 0)[1]) == 7"
)

# a socket in a group, with one source of it
SOURCES = (
    "s, group = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), bytes((255, 21)) + bytes(14)\n"
    "source = bytes(15) + bytes((1,))\n"
    "def address(b): return struct.pack('HHI', 10, 0, 0) + b + bytes(104)\n"
    "s.setsockopt(41, 20, group + struct.pack('I', 1))\n"
    "one = struct.pack('II', 1, 0) + address(group) + address(source)\n"
    "two = struct.pack('II', 1, 0) + address(group) + struct.pack('II', 1, 1)\n"
)
KEY = "key = struct.pack('HH4s120xBBHi', 2, 0, bytes((10, 0, 0, 1)), 0, 0, 80, 0) + bytes(80)\n"

KERNEL_ATTACKS = {
    # what the host's folders tell
    "list /root": ("root", "won = bool(got(os.listdir, '/root'))"),
    "list /run": ("plain", "won = bool(set(got(os.listdir, '/run') or []) - {'cellblock'})"),
    "search for the connection file": (
        "plain",
        "import glob\nd = os.path.dirname(HOST['connection_file'])\n"
        "found = [p for f in (d, d + '/../run', '/run/user', '/dev/shm') for p in glob.glob(f + '/*.json')]\n"
        "won = any('\"key\"' in (got(lambda: open(p).read()) or '') for p in found)",
    ),
    "read the machine id": ("plain", "won = bool((got(lambda: open('/etc/machine-id').read()) or '').strip())"),
    "read the host's name": ("plain", "won = socket.gethostname() == HOST['hostname']"),
    "find other devices": (
        "plain",
        "import stat\nknown = {'null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx'}\n"
        "won = any(n not in known and (stat.S_ISCHR(os.lstat('/dev/' + n).st_mode) or "
        "stat.S_ISBLK(os.lstat('/dev/' + n).st_mode)) for n in os.listdir('/dev'))",
    ),
    "list network interfaces in /sys": ("plain", "won = bool(got(os.listdir, '/sys/class/net'))"),
    "list cgroups in /sys": ("plain", "won = bool(got(os.listdir, '/sys/fs/cgroup'))"),
    "see the host's cgroup": (
        "plain",
        "won = any(line.split(':', 2)[2].strip() != '/' for line in open('/proc/self/cgroup'))",
    ),
    "see the host's ports": (
        "plain",
        "won = ':%04X ' % HOST['port'] in (got(lambda: open('/proc/net/tcp').read()) or '')",
    ),
    "see the host's sockets": (
        "plain",
        "won = HOST['socket_path'] in (got(lambda: open('/proc/net/unix').read()) or '')",
    ),
    "read the kernel's command line": (
        "plain",
        "won = bool((got(lambda: open('/proc/cmdline').read()) or '').strip())",
    ),
    "read the kernel's symbols": ("plain", "won = bool(got(lambda: open('/proc/kallsyms').readline()))"),
    "read who has keys": ("plain", "won = bool(got(lambda: open('/proc/key-users').read()))"),
    # whoever reads it keeps all programs of the machine from locking files meanwhile
    "read who has locked files": ("plain", "won = bool(got(lambda: open('/proc/locks').readline()))"),
    "read the kernel's timers": ("root", "won = bool(got(lambda: open('/proc/timer_list').readline()))"),
    "read the host's interrupts": ("plain", "won = bool(got(lambda: open('/proc/interrupts').readline()))"),
    "read the kernel's log": ("root", "won = sys_(103, 10, None, 0) > 0"),
    "list all mounts by listmount": (
        "plain",
        "q = ctypes.create_string_buffer(struct.pack('<IIQQ', 24, 0, 2**64 - 1, 0))\n"
        "won = sys_(458, q, ctypes.create_string_buffer(800), 100, 0) > 0",
    ),
    "see what is cached by cachestat": (
        "plain",
        "f = os.open('/usr/bin/env', os.O_RDONLY)\nq = ctypes.create_string_buffer(struct.pack('<QQ', 0, 4096))\n"
        "won = sys_(451, f, q, ctypes.create_string_buffer(40), 0) == 0",
    ),
    "see what is cached by mincore": (
        "plain",
        "import mmap\nm = mmap.mmap(-1, 4096)\na = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "won = sys_(27, ctypes.c_void_p(a), 4096, ctypes.create_string_buffer(8)) == 0",
    ),
    "see what is cached by a read that does not wait": (
        "plain",
        "f = os.open('/usr/bin/env', os.O_RDONLY)\ntry:\n    won = os.preadv(f, [bytearray(8)], 0, os.RWF_NOWAIT) > 0\n"
        "except BlockingIOError:\n    won = True\nexcept OSError as e:\n    why = str(e)",
    ),
    "watch what programs outside open": ("plain", "won = sys_(294, 0) >= 0"),
    "watch whole mounts": ("root", "won = sys_(300, 0, 0) >= 0"),
    "be told of changes by a signal": (
        "plain",
        "import fcntl\nwon = got(fcntl.fcntl, os.open('.', os.O_RDONLY), 1026, 4) is not None",
    ),
    # pid 1, whose child the cell is
    "kill pid 1": (
        "victim",
        "import time\np = os.getppid()\ngot(os.kill, p, 9)\nend = time.monotonic() + (0.1 if p == 1 else 60)\n"
        "while os.getppid() == p and time.monotonic() < end: pass\nwon = os.getppid() != p",
    ),
    "trace pid 1": ("victim", "won = sys_(101, 0x4206, os.getppid(), 0, 0) == 0"),
    "read pid 1's environment": (
        "victim",
        "won = bool(got(lambda: open(f'/proc/{os.getppid()}/environ', 'rb').read()))",
    ),
    "list pid 1's descriptors": ("victim", "won = bool(got(os.listdir, f'/proc/{os.getppid()}/fd'))"),
    "open pid 1's memory": ("victim", "won = bool(got(os.open, f'/proc/{os.getppid()}/mem', os.O_RDWR))"),
    "open pid 1's program": ("victim", "won = bool(got(os.open, f'/proc/{os.getppid()}/exe', os.O_RDONLY))"),
    "read pid 1's limits": (
        "victim",
        "import resource\nwon = bool(got(resource.prlimit, os.getppid(), resource.RLIMIT_NOFILE))",
    ),
    "slow pid 1 down": (
        "victim",
        "p = os.getppid()\nbefore = os.getpriority(os.PRIO_PROCESS, p)\n"
        "got(os.setpriority, os.PRIO_PROCESS, p, 19)\nwon = before != os.getpriority(os.PRIO_PROCESS, p)",
    ),
    "run pid 1 only when all is idle": (
        "victim",
        "p = os.getppid()\ngot(os.sched_setscheduler, p, os.SCHED_IDLE, os.sched_param(0))\n"
        "won = os.sched_getscheduler(p) == os.SCHED_IDLE",
    ),
    "pin pid 1": (
        "victim",
        "p = os.getppid()\nwon = bool(got(os.sched_setaffinity, p, os.sched_getaffinity(p)))",
    ),
    # the kernel's switches
    "write modprobe's path": ("root_dry", "won = bool(got(os.open, '/proc/sys/kernel/modprobe', os.O_WRONLY))"),
    "write uevent_helper": ("root_dry", "won = bool(got(os.open, '/sys/kernel/uevent_helper', os.O_WRONLY))"),
    # each trigger is work for the whole machine's kernel
    "be told of pressure": (
        "plain",
        "import glob\nwon = any(got(os.open, p, os.O_WRONLY) for p in glob.glob('/proc/pressure/*'))",
    ),
    "write a cgroup's release_agent": (
        "root_dry",
        "import glob\nwon = any(got(os.open, p, os.O_WRONLY) for p in glob.glob('/sys/fs/cgroup/*/release_agent'))",
    ),
    "adjtimex": ("plain", "won = sys_(159, ctypes.create_string_buffer(256)) >= 0"),
    "settimeofday": ("root_dry", "won = sys_(164, None, None) == 0"),
    "swapon": (
        "root_dry",
        "won = sys_(167, ctypes.c_char_p(b'/nowhere'), 0) == -1 and ctypes.get_errno() == errno.ENOENT",
    ),
    "acct": ("root_dry", "won = sys_(163, ctypes.c_char_p(b'/nowhere')) == -1 and ctypes.get_errno() == errno.ENOENT"),
    "iopl": ("plain", "won = sys_(172, 0) == 0"),
    "ioperm": ("plain", "won = sys_(173, 0x80, 1, 0) == 0"),
    "modify_ldt": ("plain", "won = sys_(154, 0, ctypes.create_string_buffer(64), 64) >= 0"),
    "kcmp": ("plain", "won = sys_(312, os.getpid(), os.getpid(), 0, 0, 1) >= 0"),
    "move_pages": ("plain", "won = sys_(279, 0, 0, None, None, None, 0) == 0"),
    "request_key": (
        "plain",
        "won = sys_(249, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'cb-none'), None, 0) == -1 and "
        "ctypes.get_errno() == 126",
    ),
    # filters lie in memory that is one sum for the whole machine (net.core.bpf_jit_limit)
    "load a filter": ("plain", OWN_FILTER.format(call="libc.prctl(22, 2, p, 0, 0)")),
    "load a filter by a number with high bits": (
        "plain",
        OWN_FILTER.format(call="sys_(157, (1 << 32) | 22, 2, p, 0, 0)"),
    ),
    "load a filter by seccomp": ("plain", OWN_FILTER.format(call="sys_(317, 1, 0, p)")),
    "load a filter for all threads": ("plain", OWN_FILTER.format(call="sys_(317, 1, 1, p)")),
    "enter strict mode": (
        "plain",
        "r = os.fork()\nif r == 0:\n    n = libc.prctl(22, 1, 0, 0, 0)\n    sys_(60, 7 if n == 0 else 0)\n"
        "won = os.waitstatus_to_exitcode(os.waitpid(r, 0)[1]) == 7",
    ),
    "take in others' orphans": ("plain", "won = libc.prctl(36, 1, 0, 0, 0) == 0"),
    "switch the time stamp counter": ("plain", "won = libc.prctl(26, 1, 0, 0, 0) == 0"),
    # copies of Python have none of their own: both would take the same events
    "make a timer that is a descriptor": ("plain", "won = sys_(283, 1, 0) >= 0"),
    "a line discipline": ("plain", "won = in_a_terminal(0x5423) != errno.EPERM"),
    "TIOCLINUX": ("plain", "won = in_a_terminal(0x541c) != errno.EPERM"),
    "deadline scheduling": (
        "root",
        "a = struct.pack('<IIQiIQQQ', 48, 6, 0, 0, 0, 10**6, 10**8, 10**8)\n"
        "won = sys_(314, 0, ctypes.create_string_buffer(a), 0) == 0",
    ),
    "real-time disk priority": ("root", "won = sys_(251, 1, 0, 1 << 13) == 0"),
    "userfaultfd by its device": ("root_dry", "won = bool(got(os.open, '/dev/userfaultfd', os.O_RDWR))"),
    # namespaces and mounts
    "unshare a pid namespace": ("userns", "won = sys_(272, 0x20000000) == 0"),
    "unshare an ipc namespace": ("userns", "won = sys_(272, 0x08000000) == 0"),
    "unshare a uts namespace": ("userns", "won = sys_(272, 0x04000000) == 0"),
    "unshare a cgroup namespace": ("userns", "won = sys_(272, 0x02000000) == 0"),
    "clone into a network namespace": (
        "userns",
        "r = sys_(56, 0x40000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nwon = r > 0\nif won: os.waitpid(r, 0)",
    ),
    "fspick": ("userns_mount", "won = sys_(433, -100, ctypes.c_char_p(b'/'), 0) >= 0"),
    "mount_setattr": (
        "userns_mount",
        "a = ctypes.create_string_buffer(struct.pack('<QQQQ', 0, 0, 1 << 18, 0))\n"
        "won = sys_(442, -100, ctypes.c_char_p(b'/'), 0, a, 32) == 0",
    ),
    "move_mount": (
        "userns_mount",
        "e = ctypes.c_char_p(b'')\nwon = sys_(429, -1, e, -1, e, 0x44) == -1 and ctypes.get_errno() == errno.EBADF",
    ),
    # memory that nothing counts, and programs out of it
    "memfd": ("plain", "won = sys_(319, ctypes.c_char_p(b'x'), 0) >= 0"),
    "memfd_secret": ("plain", "won = sys_(447, 0) >= 0"),
    "run an open file": (
        "plain",
        "f = os.open('/bin/true', os.O_RDONLY)\np = os.fork()\n"
        "if p == 0:\n    a = (ctypes.c_char_p * 2)(b'true', None)\n"
        "    sys_(322, f, ctypes.c_char_p(b''), a, a, 0x1000)\n    os._exit(1)\nwon = os.waitpid(p, 0)[1] == 0",
    ),
    "SysV shared memory": ("plain", "i = sys_(29, 0, 4096, 0o1600)\nwon = i >= 0\nif won: sys_(31, i, 0, None)"),
    "SysV semaphores": ("plain", "i = sys_(64, 0, 1, 0o1600)\nwon = i >= 0\nif won: sys_(66, i, 0, 0, 0)"),
    "a SysV queue": ("plain", "i = sys_(68, 0, 0o1600)\nwon = i >= 0\nif won: sys_(71, i, 0, None)"),
    "a POSIX queue": (
        "plain",
        "n = ctypes.c_char_p(b'cb-attack-%d' % os.getpid())\n"
        "won = sys_(240, n, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0\n"
        "if won: sys_(241, n)",
    ),
    # sockets
    "any other family of sockets": (
        "root",
        "won = any(got(socket.socket, f, t, 0) for f in set(range(64)) - {1, 2, 10, 16} for t in (1, 2, 3, 5))",
    ),
    "a ping socket": ("root", "won = bool(got(socket.socket, 2, 2, 1))"),
    "an MPTCP socket": ("plain", "won = bool(got(socket.socket, 2, 1, 262))"),
    "a program on a socket": (
        "plain",
        "s = socket.socket()\nf = ctypes.create_string_buffer(struct.pack('<HBBI', 6, 0, 0, 0xffff))\n"
        "won = bool(got(s.setsockopt, 1, 26, struct.pack('<HxxxxxxQ', 1, ctypes.addressof(f))))",
    ),
    "ESP in UDP": ("plain", "won = bool(got(socket.socket(2, 2).setsockopt, 17, 100, 2))"),
    "an upper layer on TCP": (
        "plain",
        "l = socket.create_server(('127.0.0.1', 0))\ns = socket.create_connection(l.getsockname())\n"
        "won = bool(got(s.setsockopt, 6, 31, b'tls'))",
    ),
    # what a socket keeps of these is counted by nobody: a hundred megabytes in less than a second
    "old options for packets": (
        "plain",
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
        "won = bool(got(s.setsockopt, 41, 6, struct.pack('QII', 16000, 99, 0) + bytes(15984)))",
    ),
    "many sources of a group": ("plain", SOURCES + "won = bool(got(s.setsockopt, 41, 48, two + address(source)))"),
    "a source of a group that is not heard": ("plain", SOURCES + "won = bool(got(s.setsockopt, 41, 43, one))"),
    "a source of a group that is heard": (
        "plain",
        SOURCES + "s.setsockopt(41, 21, group + struct.pack('I', 1))\nwon = bool(got(s.setsockopt, 41, 46, one))",
    ),
    "keys of a TCP socket": ("plain", KEY + "won = bool(got(socket.socket().setsockopt, 6, 14, key))"),
    "keys of a TCP socket for networks": ("plain", KEY + "won = bool(got(socket.socket().setsockopt, 6, 32, key))"),
    "send without copying": (
        "plain",
        "l = socket.create_server(('127.0.0.1', 0))\ns = socket.create_connection(l.getsockname())\n"
        "s.setsockopt(1, 60, 1)\nwon = bool(got(s.send, b'x' * 1000, 0x4000000))",
    ),
    "sendfile": (
        "plain",
        "a, b = socket.socketpair()\nwon = bool(got(os.sendfile, a.fileno(), os.open('/etc/passwd', 0), 0, 8))",
    ),
    "tee": (
        "plain",
        "a, b = os.pipe()\nc, d = os.pipe()\nos.write(b, b'x')\nwon = sys_(276, a, d, 1, 0) == 1",
    ),
    "copy_file_range": (
        "plain",
        "won = bool(got(os.copy_file_range, os.open('/etc/passwd', 0), os.open('su9', 0o102, 0o600), 8))\n"
        "os.unlink('su9')",
    ),
    "forged credentials": (
        "root",
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "won = bool(got(a.sendmsg, [b'x'], [(1, 2, struct.pack('iII', 1, 0, 0))]))",
    ),
    "a route to the metadata service": (
        "plain",
        "won = bool(got(socket.socket(2, 2).connect, ('169.254.169.254', 80)))",
    ),
    "a route to a name server": ("plain", "won = bool(got(socket.socket(2, 2).connect, ('192.0.2.1', 53)))"),
    # marks on files
    "an extended attribute": ("plain", "open('su6', 'w')\nwon = bool(got(os.setxattr, 'su6', 'user.x', b'1'))"),
    "capabilities of a file": (
        "userns",
        "open('su7', 'w')\n"
        "won = bool(got(os.setxattr, 'su7', 'security.capability', struct.pack('<5I', 0x2000001, 1 << 10, 0, 0, 0)))",
    ),
    "flags of a file": (
        "plain",
        "import fcntl\nf = os.open('su8', os.O_CREAT | os.O_RDWR, 0o600)\n"
        "won = bool(got(fcntl.ioctl, f, 0x40086602, struct.pack('Q', 0x40)))",
    ),
    "a lease": (
        "plain",
        "import fcntl\nf = os.open('sul', os.O_CREAT | os.O_RDONLY, 0o600)\n"
        "won = got(fcntl.fcntl, f, 1024, fcntl.F_RDLCK) is not None",
    ),
    "a delegation of a folder": (
        "plain",
        "import fcntl\nf = os.open('.', os.O_RDONLY)\n"
        "won = got(fcntl.fcntl, f, 1040, struct.pack('IHH', 0, fcntl.F_RDLCK, 0)) is not None",
    ),
    "give a file away": (
        "root",
        "open('sug', 'w')\ngot(os.chown, 'sug', 12345, 12345)\nwon = os.stat('sug').st_uid == 12345",
    ),
    "a set-uid program in the workspace": (
        "root",
        "import subprocess\nos.chdir(HOST['workspace'])\n"
        "won = subprocess.run(['./other-id', '-u'], capture_output=True).stdout == b'12345\\n'",
    ),
}
