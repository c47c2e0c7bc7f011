"""The attacks: each is source that runs in a cell and, as the proof that it is one, in a plain Python outside the jail.

Role: test data. An attack sets `won` to True where it got what it wanted, and leaves `why` for the report. `where` says
how it is proven outside: "plain" = an ordinary process of the same account in a scratch folder; "root" = needs root
there; "userns" = inside `unshare -Ur` (so that the host is not hurt); "pidns" = inside `unshare -Urpf`, for signals to
all. An attack that does not win there proves nothing and fails the test. HOST is a dict of facts about the outside that
the tests fill in.
"""

from attacks_kernel import KERNEL_ATTACKS

PRELUDE = """
import ctypes, errno, os, socket, struct, sys
# Attacks name a call by its number on x86-64; from 424 on all machines have the same. What takes a path alone there
# takes a folder, too, elsewhere. NO_CALL: of x86 alone.
on_aarch64, AT, NO_CALL = os.uname().machine == "aarch64", {2: 56, 83: 34, 133: 33}, 4000
AARCH64 = {
    16: 29, 27: 232, 29: 194, 31: 195, 41: 198, 56: 220, 60: 93, 64: 190, 66: 191, 68: 186, 71: 187, 101: 117,
    103: 116, 135: 92, 154: NO_CALL, 155: 41, 157: 167, 159: 171, 163: 89, 164: 170, 167: 224, 172: NO_CALL,
    173: NO_CALL, 175: 105, 227: 112, 240: 180, 241: 181, 246: 104, 248: 217, 249: 218, 250: 219, 251: 30, 272: 97,
    275: 76, 276: 77, 278: 75, 279: 239, 294: 26, 298: 241, 300: 262, 303: 264, 308: 268, 310: 270, 312: 272,
    314: 274, 317: 277, 319: 279, 321: 280, 322: 281, 323: 282,
}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
won, why = False, ""
def sys_(n, *a):
    global why
    if on_aarch64 and n < 424:
        n, a = (AT[n], (-100, *a)) if n in AT else (AARCH64[n], a)
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(n), *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    why = f"{r} errno {ctypes.get_errno()}"
    return r
def got(f, *a):
    global why
    try:
        r = f(*a)
    except Exception as e:
        why = f"{type(e).__name__}: {e}"
        return None
    why = repr(r)[:200]
    return r if r is not None else True
def in_a_terminal(request):
    # The errno of that ioctl by a process whose controlling terminal is meant: nothing but a filter answers EPERM.
    master, slave = os.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        sys_(16, slave, 0x540E, 0)
        os._exit(0 if sys_(16, slave, request, ctypes.c_char_p(b"x")) == 0 else ctypes.get_errno() & 127)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def put(path, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)
"""

# name: (where, source)
ATTACKS = {
    # host files
    "read a file of the host": ("plain", "won = got(lambda: open(HOST['secret']).read()) == HOST['secret_text']"),
    "read it by a root in /proc": (
        "plain",
        "won = HOST['secret_text'] in [got(lambda: open(f'/proc/{p}/root' + HOST['secret']).read()) for p "
        "in (1, 2, HOST['pid'], os.getppid())]",
    ),
    "read it by dots": (
        "plain",
        "won = got(lambda: open(os.getcwd() + '/..' * 40 + HOST['secret']).read()) == HOST['secret_text']",
    ),
    "list the folder beside the workspace": (
        "plain",
        "won = HOST['secret_name'] in (got(os.listdir, os.path.dirname(HOST['secret'])) or [])",
    ),
    "list /home": ("plain", "won = bool(set(got(os.listdir, '/home') or []) & set(HOST['homes']))"),
    "read the connection file": ("plain", "won = 'key' in (got(lambda: open(HOST['connection_file']).read()) or '')"),
    "see the host's processes": (
        "plain",
        "won = str(HOST['pid']) in os.listdir('/proc') and 'python' in (got(lambda: "
        "open(f\"/proc/{HOST['pid']}/cmdline\").read()) or '')",
    ),
    "read another process's environment": (
        "plain",
        "won = any(b'CELLBLOCK_CANARY=' in (got(lambda: open(f'/proc/{p}/environ', 'rb').read()) or b'') "
        "for p in os.listdir('/proc') if p.isdigit())",
    ),
    "find the canary in its own environment": ("plain", "won = 'CELLBLOCK_CANARY' in os.environ"),
    "write beside the workspace": (
        "plain",
        "p = os.path.dirname(HOST['secret']) + '/planted'\ngot(lambda: open(p, 'w').write('x'))\n"
        "won = os.path.exists(p) and os.path.exists(HOST['secret'])",
    ),
    "read /etc/shadow": ("root", "won = b':' in (got(lambda: open('/etc/shadow', 'rb').read()) or b'')"),
    "write to /usr": ("root_mountns", "won = bool(got(lambda: open('/usr/cellblock-planted', 'w').write('x')))"),
    "write into the interpreter's prefix": (
        "plain_prefix",
        "won = bool(got(lambda: open(PREFIX + '/planted.pth', 'w').write('import os')))",
    ),
    # the kernel's switches
    "write core_pattern": ("root_dry", "won = bool(got(os.open, '/proc/sys/kernel/core_pattern', os.O_WRONLY))"),
    "write vm settings": ("root_dry", "won = bool(got(os.open, '/proc/sys/vm/drop_caches', os.O_WRONLY))"),
    "write sysrq-trigger": ("root_dry", "won = bool(got(os.open, '/proc/sysrq-trigger', os.O_WRONLY))"),
    "read kcore": ("root", "won = bool(got(lambda: open('/proc/kcore', 'rb').read(4)))"),
    "read kmsg": (
        "root",
        "import stat\nfd = got(os.open, '/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK)\n"
        "won = bool(fd) and not stat.S_ISCHR(os.fstat(fd).st_mode)",
    ),
    # namespaces and mounts
    "unshare a user namespace": ("plain", "won = sys_(272, 0x10000000) == 0"),
    "unshare a mount namespace": ("userns", "won = sys_(272, 0x20000) == 0"),
    "unshare a network namespace": ("userns", "won = sys_(272, 0x40000000) == 0"),
    "unshare a time namespace": ("userns", "won = sys_(272, 0x80) == 0"),
    "clone into a user namespace": (
        "plain",
        "r = sys_(56, 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nwon = r > 0\nif won: os.waitpid(r, 0)",
    ),
    "clone3 into a user namespace": (
        "plain",
        "a = struct.pack('<8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)\n"
        "r = sys_(435, ctypes.create_string_buffer(a), 64)\nif r == 0: os._exit(0)\nwon = r > 0\n"
        "if won: os.waitpid(r, 0)",
    ),
    "unshare -Ur, the program": (
        "plain",
        "import subprocess\nwon = subprocess.run(['unshare', '-Ur', 'true'], capture_output=True).returncode == 0",
    ),
    "mount a tmpfs": ("userns_mount", "won = libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0"),
    "bind a folder over another": ("userns_mount", "won = libc.mount(b'/', b'.', None, 4096 | 16384, None) == 0"),
    "unmount /proc": ("userns_mount_own", "won = libc.umount2(b'/mnt', 2) == 0 or libc.umount2(b'/proc', 2) == 0"),
    "make /usr writable": (
        "userns_mount_own",
        "won = libc.mount(None, b'/usr', None, 32 | 4096, None) == 0 or libc.mount(None, b'/mnt', None, 32 "
        "| 4096, None) == 0",
    ),
    "fsopen": ("userns_mount", "won = sys_(430, ctypes.c_char_p(b'tmpfs'), 0) >= 0"),
    "open_tree": ("userns_mount", "won = sys_(428, -100, ctypes.c_char_p(b'/'), 0x8001) >= 0"),
    "pivot_root": (
        "userns_mount",
        "os.makedirs('pr/old', exist_ok=True)\nlibc.mount(b'pr', b'pr', None, 4096, None)\n"
        "won = sys_(155, ctypes.c_char_p(b'pr'), ctypes.c_char_p(b'pr/old')) == 0",
    ),
    "chroot": ("userns", "won = libc.chroot(b'.') == 0"),
    "setns to itself": (
        "userns_uts",
        "f = os.open('/proc/self/ns/uts', os.O_RDONLY)\nwon = sys_(308, f, 0) == 0\nos.close(f)",
    ),
    "set the hostname": ("userns_uts", "won = libc.sethostname(b'mine', 4) == 0"),
    # the kernel's odd corners
    "ptrace a child": (
        "plain",
        "p = os.fork()\nif p == 0:\n    import time; time.sleep(60); os._exit(0)\n"
        "won = sys_(101, 16, p, 0, 0) == 0\nos.kill(p, 9)\nos.waitpid(p, 0)",
    ),
    "read another process's memory": (
        "plain",
        "import mmap\nbuf = ctypes.create_string_buffer(8)\nsrc = ctypes.create_string_buffer(b'abcdefg')\n"
        "iov = struct.pack('<QQ', ctypes.addressof(buf), 8)\nriov = struct.pack('<QQ', "
        "ctypes.addressof(src), 8)\nwon = sys_(310, os.getpid(), ctypes.create_string_buffer(iov), 1, "
        "ctypes.create_string_buffer(riov), 1, 0) == 8",
    ),
    "pidfd_getfd": ("plain", "fd = sys_(434, os.getpid(), 0)\nwon = sys_(438, fd, 0, 0) >= 0"),
    "descriptors of one thread's own": ("plain", "won = sys_(436, 1 << 30, 1 << 30, 2) == 0"),
    "io_uring": ("plain", "won = sys_(425, 8, ctypes.create_string_buffer(120)) >= 0"),
    "bpf": (
        "root_dry",
        "won = sys_(321, 0, ctypes.create_string_buffer(struct.pack('<IIIII', 2, 4, 4, 1, 0) + bytes(100)), 120) >= 0",
    ),
    "perf_event_open": (
        "root_dry",
        "won = sys_(298, ctypes.create_string_buffer(struct.pack('<IIQ', 1, 112, 0) + bytes(96)), 0, -1, -1, 0) >= 0",
    ),
    "userfaultfd": ("root_dry", "won = sys_(323, 1) >= 0"),
    "keyctl": ("plain", "won = sys_(250, 1, 0) >= 0"),
    "add_key": (
        "plain",
        "won = sys_(248, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'cb'), ctypes.c_char_p(b'x'), 1, -1) >= 0",
    ),
    "AF_ALG": ("plain", "won = bool(got(socket.socket, 38, 5, 0))"),
    "AF_VSOCK": ("plain", "won = bool(got(socket.socket, 40, 1, 0))"),
    "AF_PACKET": ("root", "won = bool(got(socket.socket, 17, 3, 0))"),
    "netlink beyond routes": ("plain", "won = bool(got(socket.socket, 16, 3, 15))"),
    "a raw socket": ("root", "won = bool(got(socket.socket, 2, 3, 1))"),
    "family with high bits": ("plain", "won = sys_(41, 38 | (1 << 32), 5, 0) >= 0"),
    "TIOCSTI": ("plain", "won = in_a_terminal(0x5412) != errno.EPERM"),
    "TIOCSTI with high bits": ("plain", "won = in_a_terminal(0x100005412) != errno.EPERM"),
    "personality": ("plain", "won = sys_(135, 0x0400000) >= 0"),
    "open by handle": (
        "root",
        "h = ctypes.create_string_buffer(struct.pack('<Ii', 128, 0) + bytes(128))\nm = ctypes.c_int()\n"
        "won = sys_(303, -100, ctypes.c_char_p(b'/'), h, ctypes.byref(m), 0) == 0",
    ),
    "splice into a pipe": (
        "plain",
        "r, w = os.pipe()\nf = os.open('/etc/passwd', os.O_RDONLY)\nwon = sys_(275, f, 0, w, 0, 8, 0) > 0",
    ),
    "vmsplice": (
        "plain",
        "r, w = os.pipe()\nb = ctypes.create_string_buffer(8)\n"
        "won = sys_(278, w, ctypes.create_string_buffer(struct.pack('<QQ', ctypes.addressof(b), 8)), 1, 0) > 0",
    ),
    "a seccomp listener": (
        "plain",
        "libc.prctl(38, 1, 0, 0, 0)\n"
        "f = ctypes.create_string_buffer(struct.pack('<HBBI', 6, 0, 0, 0x7fff0000))\n"
        "p = ctypes.create_string_buffer(struct.pack('<HxxxxxxQ', 1, ctypes.addressof(f)))\n"
        "won = sys_(317, 1, 8, p) >= 0",
    ),
    "real-time scheduling": ("root", "won = bool(got(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)))"),
    "nice below zero": ("root", "before = os.nice(0)\ngot(os.nice, -5)\nwon = os.nice(0) < before"),
    "set the clock": ("root_dry", "won = sys_(227, 0, None) == -1 and ctypes.get_errno() == errno.EFAULT"),
    "kexec": (
        "root_dry",
        "won = sys_(246, 0, 99, None, 0) == -1 and ctypes.get_errno() != errno.EPERM and "
        "ctypes.get_errno() != errno.ENOSYS",
    ),
    "load a module": (
        "root_dry",
        "won = sys_(175, None, 0, None) == -1 and ctypes.get_errno() in (errno.ENOEXEC, errno.EFAULT)",
    ),
    "make a device node": ("root", "won = bool(got(os.mknod, 'dev', 0o600 | 0o020000, os.makedev(1, 3)))"),
    # set-uid
    "chmod set-uid": (
        "plain",
        "open('su', 'w').close()\ngot(os.chmod, 'su', 0o4755)\nwon = bool(os.stat('su').st_mode & 0o6000)",
    ),
    "chmod set-gid": (
        "plain",
        "open('sg', 'w').close()\ngot(os.chmod, 'sg', 0o2755)\nwon = bool(os.stat('sg').st_mode & 0o6000)",
    ),
    "create set-uid": (
        "plain",
        "fd = sys_(2, ctypes.c_char_p(b'su2'), os.O_CREAT | os.O_WRONLY, 0o4755)\n"
        "won = os.path.exists('su2') and bool(os.stat('su2').st_mode & 0o6000)",
    ),
    "openat2 set-uid": (
        "plain",
        "how = ctypes.create_string_buffer(struct.pack('<QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0))\n"
        "sys_(437, -100, ctypes.c_char_p(b'su3'), how, 24)\n"
        "won = os.path.exists('su3') and bool(os.stat('su3').st_mode & 0o6000)",
    ),
    "mkdir set-gid": (
        "plain",
        "sys_(83, ctypes.c_char_p(b'sgd'), 0o2777)\nos.path.exists('sgd') and got(os.chmod, 'sgd', 0o2777)\n"
        "won = os.path.exists('sgd') and bool(os.stat('sgd').st_mode & 0o6000)",
    ),
    "mknod set-uid": (
        "plain",
        "sys_(133, ctypes.c_char_p(b'su4'), 0o104755, 0)\n"
        "won = os.path.exists('su4') and bool(os.stat('su4').st_mode & 0o6000)",
    ),
    "fchmodat2 set-uid": (
        "plain",
        "open('su5', 'w').close()\nsys_(452, -100, ctypes.c_char_p(b'su5'), 0o4755, 0)\n"
        "won = bool(os.stat('su5').st_mode & 0o6000)",
    ),
    # network
    "reach a port of the host": (
        "plain",
        "won = bool(got(lambda: socket.create_connection(('127.0.0.1', HOST['port']), 60).recv(2) == b'hi'))",
    ),
    "reach an abstract socket": (
        "plain",
        "s = socket.socket(socket.AF_UNIX)\nwon = bool(got(lambda: s.connect(HOST['abstract']) or True))",
    ),
    "reach a socket by its path": (
        "plain",
        "s = socket.socket(socket.AF_UNIX)\nwon = bool(got(lambda: s.connect(HOST['socket_path']) or True))",
    ),
    "see the host's network interfaces": (
        "plain",
        "won = len([n for _, n in socket.if_nameindex() if n != 'lo']) > 0",
    ),
    # what the host runs later
    "a .pth into a venv in the workspace": (
        "plain",
        "d = HOST['venv_site']\nos.chdir(HOST['workspace'])\n"
        "got(lambda: open(d + '/planted.pth', 'w').write('import os'))\n"
        "won = os.path.exists(d + '/planted.pth')",
    ),
    "replace the venv's folder": (
        "plain",
        "os.chdir(HOST['workspace'])\ngot(os.rename, 'sub/venv', 'sub/old')\n"
        "won = os.path.exists('sub/old/pyvenv.cfg')\nif won: os.rename('sub/old', 'sub/venv')",
    ),
    "replace the venv's parent": (
        "plain",
        "os.chdir(HOST['workspace'])\ngot(os.rename, 'sub', 'moved')\n"
        "won = os.path.exists('moved/venv/pyvenv.cfg')\nif won: os.rename('moved', 'sub')",
    ),
    "write a git hook": (
        "plain",
        "os.chdir(HOST['workspace'])\ngot(lambda: open('.git/hooks/post-checkout', 'w').write('#!/bin/sh'))\n"
        "won = os.path.exists('.git/hooks/post-checkout')",
    ),
    "write git's config": (
        "plain",
        "os.chdir(HOST['workspace'])\ngot(lambda: open('.git/config', 'a').write('#planted'))\n"
        "won = 'planted' in open('.git/config').read()",
    ),
    "mv .git": (
        "plain",
        "os.chdir(HOST['workspace'])\ngot(os.rename, '.git', 'git2')\nwon = os.path.exists('git2/config')\n"
        "if won: os.rename('git2', '.git')",
    ),
    "write .envrc": (
        "plain",
        "os.chdir(HOST['workspace'])\ngot(lambda: open('.envrc', 'a').write('#planted'))\n"
        "won = 'planted' in open('.envrc').read()",
    ),
    # signals
    "kill(-1)": (
        "pidns",
        "import subprocess\np = subprocess.Popen(['sleep', '60'])\n"
        "won = libc.kill(-1, 15) == 0 and p.wait() == -15\nif p.poll() is None: p.kill(); p.wait()",
    ),
    "kill the host's test": ("plain", "won = bool(got(lambda: os.kill(HOST['pid'], 0) or True))"),
    "core dumps": (
        "plain",
        "import resource\n"
        "got(resource.setrlimit, resource.RLIMIT_CORE, (1 << 20, 1 << 20))\n"
        "won = resource.getrlimit(resource.RLIMIT_CORE)[0] == 1 << 20",
    ),
    "core dumps to the host's handler": (  # which gets those of all whose limit is not 1
        "plain",
        "import resource\n"
        "got(resource.setrlimit, resource.RLIMIT_CORE, (0, 0))\n"
        "won = resource.getrlimit(resource.RLIMIT_CORE)[0] == 0",
    ),
    "a socket that holds up who closes it": (  # which is the supervisor, where it lies in a message to it
        "plain",
        "s = socket.socket()\ngot(s.setsockopt, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 100000))\n"
        "won = struct.unpack('ii', s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0] == 1",
    ),
    "labels of flows, of which all namespaces have 4096 together": (
        "plain",
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
        "wish = socket.inet_pton(socket.AF_INET6, '::1') + struct.pack('>I', 0)\n"
        "wish += struct.pack('BBHHHI', 0, 1, 1, 0, 0, 0)\n"
        "won = bool(got(s.setsockopt, socket.IPPROTO_IPV6, 32, wish))",
    ),
    "a more precious place for the OOM killer": (
        "root_dry",
        "won = bool(got(put, '/proc/self/oom_score_adj', b'-1000'))",
    ),
}

ATTACKS.update(KERNEL_ATTACKS)

# Wholly foreign call tables: a C program, for the jail kills the one who tries.
FOREIGN = r"""
#include <unistd.h>
#include <sys/syscall.h>
#include <stdio.h>
int main(int argc, char **argv) {
    long r;
    if (argc > 1) {
        r = syscall(0x40000000 | 39);                     /* x32 getpid */
    } else {
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory"); /* i386 getpid */
    }
    printf("%ld\n", r);
    return 0;
}
"""
