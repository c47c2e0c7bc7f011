"""What people run in notebooks, as cells: each leaves nothing behind that the next could stumble over, and raises if
something does not work.

Role: test data, for test_workloads.py (in cells) and tests/tools/syscalls.py (which system calls each needs). NEEDS
names modules and programs without which a workload is skipped.
"""

WORKLOADS = {}
NEEDS = {
    "numpy": ["numpy"],
    "scipy": ["scipy"],
    "pandas": ["pandas"],
    "matplotlib": ["matplotlib"],
    "scikit-learn": ["sklearn"],
    "git": ["git"],
    "gcc": ["gcc"],
    "terminal": ["pexpect"],
    "zmq": ["zmq"],
}

WORKLOADS["python"] = r"""
import hashlib, json, os, platform, re, resource, shutil, stat, subprocess, sys, tempfile, time, uuid, zoneinfo
import glob, gzip, io, locale, logging, mmap, pathlib, pickle, random, shelve, tarfile, zipfile
os.makedirs("w/a/b"); open("w/a/f", "w").write("text")
shutil.copy2("w/a/f", "w/a/g"); shutil.copytree("w/a", "w/c"); os.rename("w/a/g", "w/a/h"); shutil.move("w/c", "w/d")
os.chmod("w/a/f", 0o600); os.utime("w/a/f"); os.symlink("f", "w/a/s"); os.link("w/a/f", "w/a/l"); os.mkfifo("w/p")
os.truncate("w/a/f", 2); assert os.stat("w/a/f").st_size == 2 and os.path.realpath("w/a/s").endswith("/w/a/f")
assert sorted(e.name for e in os.scandir("w/a")) == ["b", "f", "h", "l", "s"] and len(list(os.walk("w"))) == 5
with tempfile.TemporaryDirectory() as d, open(d + "/m", "w+b") as f:
    f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[:2] = b"ab"; m.flush(); m.close(); os.fsync(f.fileno())
    assert f.read(2) == b"ab"; shutil.make_archive(d + "/t", "gztar", "w/a"); shutil.unpack_archive(d + "/t.tar.gz", d)
assert shutil.disk_usage(".").total and os.access("w", os.W_OK) and os.cpu_count() and os.getloadavg() is not None
assert subprocess.run(["sh", "-c", "echo $0; exit 3"], capture_output=True).returncode == 3
assert subprocess.check_output("yes | head -c 100000 | wc -c", shell=True).strip() == b"100000"
assert os.system("true") == 0 and os.popen("echo hi").read() == "hi\n"
r, w = os.pipe(); os.write(w, b"x"); assert os.read(r, 1) == b"x"; os.close(r); os.close(w)
pid = os.fork()
if pid == 0: os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
p = os.posix_spawn("/bin/true", ["true"], {}); assert os.waitpid(p, 0)[1] == 0
uuid.uuid1(), uuid.uuid4(), platform.platform(), resource.getrusage(resource.RUSAGE_SELF), os.urandom(8)
time.sleep(0.01)
os.nice(0), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.getpgid(0), os.getsid(0), os.times()
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
shutil.rmtree("w")
"""

WORKLOADS["signals and timers"] = r"""
import os, select, signal, time
got = []
old = signal.signal(signal.SIGALRM, lambda *a: got.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)  # more than one: the first may come before the pause
signal.pause(); signal.alarm(0); assert got
assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
signal.signal(signal.SIGALRM, old)
old = signal.signal(signal.SIGUSR1, lambda *a: got.append(2)); os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1); assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1]); signal.signal(signal.SIGUSR1, old)
assert got.count(2) == 2
r, w = os.pipe(); os.write(w, b"x")
assert select.select([r], [], [], 0)[0] == [r]
p = select.poll(); p.register(r); assert p.poll(0)
e = select.epoll(); e.register(r); assert e.poll(0); e.close(); os.close(r); os.close(w)
time.process_time(), time.thread_time(), time.clock_getres(time.CLOCK_MONOTONIC), time.get_clock_info("time")
"""

WORKLOADS["threads"] = r"""
import concurrent.futures, queue, threading
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(lambda n: n * n, range(100))) == 328350
q = queue.Queue(); t = threading.Thread(target=lambda: q.put(1)); t.start(); t.join(); assert q.get() == 1
"""

MULTIPROCESSING = r"""
import math, multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("%s")
    with context.Pool(2) as pool:
        assert pool.map(math.factorial, [3, 4, 5]) == [6, 24, 120]
    q = context.Queue(); p = context.Process(target=q.put, args=(7,)); p.start()
    assert q.get(timeout=300) == 7; p.join()
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(create=True, size=1000); s.buf[0] = 9; s.close(); s.unlink()
"""
for method in ("fork", "spawn", "forkserver"):
    WORKLOADS["multiprocessing " + method] = MULTIPROCESSING % method

WORKLOADS["asyncio"] = r"""
import asyncio, sys, threading
async def main():
    p = await asyncio.create_subprocess_exec(sys.executable, "-Ic", "print(input())", stdin=-1, stdout=-1)
    out, _ = await asyncio.wait_for(p.communicate(b"hi\n"), 300)
    assert out == b"hi\n" and p.returncode == 0
    p = await asyncio.create_subprocess_shell("exit 3"); assert await p.wait() == 3
    assert await asyncio.to_thread(lambda: 5) == 5
    async def serve(reader, writer):
        writer.write(await reader.readline()); writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    w.write(b"line\n"); assert await r.readline() == b"line\n"; w.close(); server.close()
failed = []
def run():
    try:
        asyncio.run(main())
    except BaseException as e:
        failed.append(e)
t = threading.Thread(target=run); t.start(); t.join()  # the cell's own thread has a loop already
assert not failed, failed
"""

WORKLOADS["sockets"] = r"""
import http.server, socket, ssl, threading, urllib.request
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
assert urllib.request.urlopen("http://127.0.0.1:%d/" % s.server_port).status == 200
s.shutdown(); s.server_close()
a, b = socket.socketpair(); a.sendmsg([b"x"]); assert b.recvmsg(1)[0] == b"x"; a.shutdown(socket.SHUT_WR)
a.close(); b.close()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); u.sendto(b"x", u.getsockname())
assert u.recvfrom(1)[0] == b"x"; u.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF); u.close()
assert socket.getaddrinfo("localhost", 80); socket.gethostname(), ssl.create_default_context()
try:
    socket.getaddrinfo("example.org", 80)
except socket.gaierror:
    pass
"""

WORKLOADS["sqlite"] = r"""
import os, sqlite3
with sqlite3.connect("d.db") as c:
    c.execute("pragma journal_mode=wal"); c.execute("create table t (a)")
    c.executemany("insert into t values (?)", [(i,) for i in range(1000)])
    assert c.execute("select sum(a) from t").fetchone() == (499500,)
c.close(); [os.unlink(f) for f in os.listdir(".") if f.startswith("d.db")]
"""

WORKLOADS["numpy"] = r"""
import numpy as np, os
a = np.random.default_rng(1).random((300, 300)); assert np.allclose(a @ np.linalg.inv(a), np.eye(300), atol=1e-6)
m = np.memmap("m.bin", dtype="f8", mode="w+", shape=(1000,)); m[:] = 2; m.flush(); del m
assert np.fromfile("m.bin").sum() == 2000; os.unlink("m.bin")
np.save("a.npy", a); assert (np.load("a.npy", mmap_mode="r") == a).all(); os.unlink("a.npy")
"""

WORKLOADS["scipy"] = r"""
import numpy as np, scipy.linalg, scipy.optimize, scipy.sparse.linalg
assert abs(scipy.optimize.minimize(lambda x: (x[0] - 3) ** 2, [0.0]).x[0] - 3) < 1e-4
scipy.linalg.svd(np.arange(10000.0).reshape(100, 100))
"""

WORKLOADS["pandas"] = r"""
import os, pandas as pd
d = pd.DataFrame({"a": range(1000), "b": [str(i % 7) for i in range(1000)]})
assert d.groupby("b").a.sum().sum() == 499500
d.to_csv("d.csv", index=False); assert len(pd.read_csv("d.csv")) == 1000; os.unlink("d.csv")
"""

WORKLOADS["matplotlib"] = r"""
import io, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.plot([1, 4, 9]); plt.title("text"); b = io.BytesIO(); plt.savefig(b, format="png"); plt.close("all")
assert b.getvalue()[:4] == b"\x89PNG"
"""

WORKLOADS["scikit-learn"] = r"""
import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
r = np.random.default_rng(1); x = r.random((200, 4)); y = (x[:, 0] > 0.5).astype(int)
assert RandomForestClassifier(10, n_jobs=2, random_state=1).fit(x, y).score(x, y) > 0.9
assert len(KMeans(3, n_init=2, random_state=1).fit(x).cluster_centers_) == 3
"""

WORKLOADS["pip"] = r"""
import base64, hashlib, os, shutil, subprocess, sys, zipfile
info = "localpkg-1.dist-info/"
files = {"localpkg.py": "x = 42\n", info + "METADATA": "Metadata-Version: 2.1\nName: localpkg\nVersion: 1\n",
         info + "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
record = ""
for n, t in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b"=").decode()
    record += "%s,sha256=%s,%d\n" % (n, digest, len(t))
files[info + "RECORD"] = record + info + "RECORD,,\n"
with zipfile.ZipFile("localpkg-1-py3-none-any.whl", "w") as z:
    for n, t in files.items():
        z.writestr(n, t)
pip = [sys.executable, "-m", "pip", "install", "--no-index", "--disable-pip-version-check"]
p = subprocess.run([*pip, "--target", "lib", "./localpkg-1-py3-none-any.whl"], capture_output=True, text=True)
assert p.returncode == 0, p.stderr
out = subprocess.check_output([sys.executable, "-c", "import localpkg; print(localpkg.x)"], env={"PYTHONPATH": "lib"})
assert out == b"42\n"; shutil.rmtree("lib"); os.unlink("localpkg-1-py3-none-any.whl")
"""

WORKLOADS["venv"] = r"""
import shutil, subprocess, sys
subprocess.run([sys.executable, "-m", "venv", "--without-pip", "v"], check=True)
out = subprocess.check_output(["v/bin/python", "-c", "import sys; print(sys.prefix != sys.base_prefix)"])
assert out == b"True\n"; shutil.rmtree("v")
"""

WORKLOADS["git"] = r"""
import os, shutil, subprocess
def git(*args):
    return subprocess.run(["git", *args], cwd="repo", check=True, capture_output=True, text=True).stdout
os.mkdir("repo"); git("init", "-q"); git("config", "user.email", "a@b"); git("config", "user.name", "a")
open("repo/f", "w").write("text"); git("add", "f"); git("commit", "-q", "-m", "first")
assert "first" in git("log"); git("checkout", "-q", "-b", "other"); git("gc", "-q"); git("clone", "-q", ".", "copy")
git("status"); git("diff", "HEAD")
shutil.rmtree("repo")
"""

WORKLOADS["gcc"] = r"""
import ctypes, os, subprocess
code = '#include <stdio.h>\nint f(void) { return 7; }\nint main(void) { printf("%d", f()); return 0; }\n'
open("p.c", "w").write(code)
subprocess.run(["gcc", "-O1", "-pthread", "-o", "p", "p.c"], check=True)
assert subprocess.check_output(["./p"]) == b"7"
subprocess.run(["gcc", "-shared", "-fPIC", "-flto", "-o", "p.so", "p.c"], check=True)
assert ctypes.CDLL("./p.so").f() == 7
subprocess.run("gcc -c p.c && ar rcs p.a p.o && strip p && ./p", shell=True, check=True, stdout=-1)
[os.unlink(f) for f in ("p.c", "p", "p.so", "p.o", "p.a")]
"""

WORKLOADS["shell"] = r"""
import subprocess
subprocess.run('''set -e
mkdir -p s/a; cd s; echo b > x; echo a >> x
cp -a x y; cp -r a c; mv y a/; mv a/y z; ln x h; ln -s x l; sort x > t; touch -d 2020-01-01 t; ls -la . > t
find . -name x -exec cat {} + | grep -c a > t; sed -i s/a/c/ x; test -r x; chmod 700 x; install -m 644 x i; stat x > t
tar czf a.tgz x a; tar xzf a.tgz; mkfifo p; (cat p > t &); echo x > p; rm -rf a c; df . > t; du -s . > t
dd if=x of=t 2>/dev/null; timeout 300 sleep 0.01; nice true; env | head -c 10 > t; date > t; id > t; realpath l > t
mktemp > t; cp x /tmp/moved; mv /tmp/moved .; mv -n x moved; truncate -s 10 t; split -b 5 t; sync x; tail -c 1 x > t
yes | head -1000 | xargs -P 2 echo > t; cd ..; rm -r s
''', shell=True, check=True, stdout=-1)
"""

WORKLOADS["terminal"] = r"""
import pexpect
assert pexpect.run("sh -c 'stty size; tty; echo done'").endswith(b"done\r\n")
child = pexpect.spawn("cat"); child.sendline("line"); child.expect("line"); child.sendintr(); child.expect(pexpect.EOF)
child.close()
"""

WORKLOADS["zmq"] = r"""
import zmq
with zmq.Context() as c, c.socket(zmq.REP) as a, c.socket(zmq.REQ) as b:
    port = a.bind_to_random_port("tcp://127.0.0.1"); b.connect("tcp://127.0.0.1:%d" % port)
    b.send(b"x"); assert a.recv() == b"x"
"""
