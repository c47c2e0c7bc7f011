"""Libraries with threads of their own go on after a take-over, in branches, and again and again: the same results, at
once.

Those that the kernel's Python has; with CELLBLOCK_TEST_LIBRARIES=/path/to/python those of that one.
"""

import ast
import os
import subprocess
import sys

import pytest

import kernels
from session_state import FAILURES

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once, pytest.mark.timeout(1800)]
PYTHON = os.environ.get("CELLBLOCK_TEST_LIBRARIES")

LAYERS = {"workqueue": "workqueue", "omp": "omppool", "tbb": "tbbpool"}  # of numba: the modules that load them

PRELOAD = "import ctypes, glob, sys; [ctypes.CDLL(each) for each in glob.glob(sys.prefix + '/lib/libtbb.so.*')]\n"

# what must be importable: a set-up that defines work(), whose value is the same each time
ARRAYS = "import numpy as np; r = np.random.default_rng(1); k, v = r.integers(0, 99, 200_000), r.random(200_000)\n"
LIBRARIES = {
    "polars": ARRAYS + "import polars as pl; df = pl.DataFrame({'k': k, 'v': v})\n"
    "def work(): return round(df.lazy().group_by('k').agg(pl.col('v').sum()).sort('k').collect()['v'].sum(), 3)",
    "pyarrow": ARRAYS + "import pyarrow as pa; t = pa.table({'k': k, 'v': v})\n"
    "def work(): return round(float(t.group_by('k').aggregate([('v', 'sum')])['v_sum'].to_numpy().sum()), 3)",
    "duckdb": "import duckdb; c = duckdb.connect(); c.execute('create table t as select range % 99 k, range v "
    "from range(1000000)')\ndef work(): return c.execute('select sum(s) from (select k, sum(v) s from t group by k)')"
    ".fetchone()[0]",
    "numpy": "import numpy as np; a = np.arange(640000.).reshape(800, 800) / 640000\n"
    "def work(): return round(float((a @ a).sum()), 3)",
    "sklearn": ARRAYS + "from sklearn.ensemble import HistGradientBoostingClassifier as H\n"
    "from sklearn.ensemble import RandomForestClassifier as R\n"
    "x = r.random((2000, 4)); y = x[:, 0] > 0.5\ndef work(): return H(max_iter=3).fit(x, y).score(x, y) > 0.8, "
    "R(9, n_jobs=3).fit(x, y).score(x, y) > 0.8",
    "joblib": "import joblib\ndef work(): return sum(joblib.Parallel(3, prefer='threads')(joblib.delayed(abs)(i) "
    "for i in range(99)))",
    "dask": "import dask\ndef work(): return dask.compute(sum(dask.delayed(abs)(i) for i in range(50)), "
    "scheduler='threads')[0]",
    # its monitor, a thread, looks after a bar that would not show itself for long, and takes that from it
    "tqdm": "import io, time, tqdm; tqdm.tqdm.monitor_interval = 0.01\n"
    "def bar(): return tqdm.tqdm(range(99), file=io.StringIO(), maxinterval=0.01, miniters=1000)\n"
    "first = bar(); monitor = tqdm.tqdm.monitor\ndef work():\n    b = bar()\n"
    "    end = time.monotonic() + 30\n    while b.miniters > 1 and time.monotonic() < end: time.sleep(0.001)\n"
    "    return b.miniters, sum(b), tqdm.tqdm.monitor is monitor, monitor.is_alive()",
    # what it has of connections is dead each time
    "requests": "import http.server, requests, threading\nclass Answer(http.server.BaseHTTPRequestHandler):\n"
    "    protocol_version = 'HTTP/1.1'\n    def do_GET(self):\n"
    "        self.send_response(200), self.send_header('Content-Length', '2'), self.end_headers()\n"
    "        self.wfile.write(b'ok')\n    def log_message(self, *_): pass\n"
    "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Answer)\n"
    "threading.Thread(target=server.serve_forever, daemon=True).start(); session = requests.Session()\n"
    "def work(): return [session.get('http://127.0.0.1:%d/' % server.server_port, timeout=60).text for _ in range(3)]",
    "torch": "import torch; a = torch.arange(640000.).reshape(800, 800) / 640000\n"
    "def work(): return round(float((a @ a).sum()))",
    "jax": "import jax, jax.numpy as jnp; f = jax.jit(lambda a: (a @ a).sum())\n"
    "def work(): return round(float(f(jnp.arange(10000.).reshape(100, 100) / 10000)), 1)",
    "onnxruntime": "import onnxruntime as o, numpy as np\ndef work(): return len(o.get_available_providers()) > 0",
    "cv2": "import cv2, numpy as np; a = np.arange(640000, dtype=np.uint8).reshape(800, 800)\n"
    "def work(): return int(cv2.GaussianBlur(a, (9, 9), 2).sum())",
    "xgboost": ARRAYS + "import xgboost; x = r.random((2000, 4)); y = x[:, 0] > 0.5\n"
    "def work(): return xgboost.XGBClassifier(n_estimators=3).fit(x, y).score(x, y) > 0.8",
    "uvloop": "import asyncio, threading, uvloop; loop = uvloop.new_event_loop()\n"
    "async def seven(): await asyncio.sleep(0.001); return 7\n"
    "threading.Thread(target=loop.run_forever, daemon=True).start()\n"
    "def work(): return asyncio.run_coroutine_threadsafe(seven(), loop).result(60)",
    "asyncio": "import asyncio, threading; loop = asyncio.new_event_loop()\n"
    "async def seven(): await asyncio.sleep(0.001); return 7\n"
    "threading.Thread(target=loop.run_forever, daemon=True).start()\n"
    "def work(): return asyncio.run_coroutine_threadsafe(seven(), loop).result(60)",
    "sqlite3": "import sqlite3; c = sqlite3.connect(':memory:', check_same_thread=False)\n"
    "_ = c.execute('create table t (x)'); _ = c.executemany('insert into t values (?)', [(i,) for i in range(999)])\n"
    "def work(): return c.execute('select sum(x) from t').fetchone()[0]",
    "logging": "import logging, logging.handlers, queue; q = queue.Queue(); seen = []\n"
    "class Keep(logging.Handler):\n    def emit(self, record): seen.append(record.msg)\n"
    "listener = logging.handlers.QueueListener(q, Keep()); listener.start(); log = logging.getLogger('here')\n"
    "log.addHandler(logging.handlers.QueueHandler(q)); log.propagate = False\nimport time\n"
    "def work():\n    seen.clear(); log.error('said')\n    while not seen: time.sleep(0.001)\n    return seen[0]",
    "concurrent.futures": "from concurrent.futures import ThreadPoolExecutor; pool = ThreadPoolExecutor(4)\n"
    "def work(): return sum(pool.map(abs, range(99)))",
    "multiprocessing": "import multiprocessing; pool = multiprocessing.get_context('fork').Pool(2)\n"
    "def work(): return sum(pool.map_async(abs, range(99)).get(60))",
}
NUMBA = (
    ARRAYS + "import numba; numba.config.THREADING_LAYER = %r\n@numba.njit(parallel=True)\n"
    "def add(v):\n    s = 0.0\n    for i in numba.prange(v.size): s += v[i]\n    return s\n"
    "def work(): return round(add(v), 3), numba.threading_layer()"
)
LIBRARIES |= {f"numba.np.ufunc.{module}": NUMBA % layer for layer, module in LAYERS.items()}
LIBRARIES["numba.np.ufunc.tbbpool"] = PRELOAD + LIBRARIES["numba.np.ufunc.tbbpool"]
DEATHS = {
    "exit": FAILURES["os._exit"],
    "segfault": FAILURES["segfault"],
    "killed": FAILURES["kills itself"],
    "memory": FAILURES["memory"],
    "time": FAILURES["C code that holds the GIL"],
}


def die(client, how):
    code, _, metadata = DEATHS[how]
    return client.run(code, metadata=metadata or {"cellblock": {"memory": "1900M"}}, timeout=60)


GRPC = """
import grpc
from concurrent import futures
def serve():
    server = grpc.server(futures.ThreadPoolExecutor(4))
    twice = grpc.unary_unary_rpc_method_handler(lambda request, context: request * 2)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x", {"twice": twice}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, grpc.insecure_channel("127.0.0.1:%d" % port).unary_unary("/x/twice")
server, call = serve()
"""

SERVERS = """
import asyncio, http.server, select, socket, threading, time, urllib.request
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200), self.end_headers(), self.wfile.write(b"hello")
    def log_message(self, *_): pass
class On6(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6
servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello), On6(("::1", 0), Hello)]
for each in servers: threading.Thread(target=each.serve_forever, daemon=True).start()
woken = socket.create_server(("127.0.0.1", 0))
woken.setblocking(False)
def serve():  # as libraries in C do, which are told once of what comes
    e = select.epoll()
    e.register(woken, select.EPOLLIN | select.EPOLLET)
    while True:
        e.poll()
        try:
            while True: woken.accept()[0].sendall(b"once")
        except BlockingIOError: pass
threading.Thread(target=serve, daemon=True).start()
async def answer(reader, writer): writer.write((await reader.readline()).upper()), writer.close()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
upper = asyncio.run_coroutine_threadsafe(asyncio.start_server(answer, "127.0.0.1", 0), loop).result()
def call(port):
    with socket.create_connection(("127.0.0.1", port), 30) as s: s.sendall(b"ab\\n"); return s.recv(9)
def work():
    urls = [("http://127.0.0.1:%d", "http://[::1]:%d")[i] % s.server_port for i, s in enumerate(servers)]
    said = [urllib.request.urlopen(each, timeout=30).read() for each in urls]
    return said + [call(each.getsockname()[1]) for each in (woken, upper.sockets[0])]
"""

CLUSTER = """
import dask.distributed, logging
logging.getLogger("distributed").setLevel("CRITICAL")
def begin():
    return dask.distributed.Client(n_workers=1, threads_per_worker=1, processes=%s, dashboard_address=None)
def work(n, patience=60): return client.submit(abs, -n).result(patience)
client = begin()
"""

ZMQ = """
import threading, zmq
def begin():
    context = zmq.Context()
    there, here = context.socket(zmq.REP), context.socket(zmq.REQ)
    there.bind("inproc://x"), here.connect("inproc://x")
    def echo():
        while True: there.send(there.recv())
    threading.Thread(target=echo, daemon=True).start()
    return here
here = begin()
def work(): here.send(b"seven"); return here.recv()
"""

FIND = PRELOAD + """
import importlib, importlib.util
for name in sys.argv[1:]:
    try:
        if "." in name: importlib.import_module(name)  # that lacks what it is linked with, maybe
        if importlib.util.find_spec(name): print(name)
    except ImportError: pass
"""
THERE = subprocess.run(
    [PYTHON or sys.executable, "-c", FIND, *LIBRARIES, "distributed", "grpc", "zmq"],
    check=True,
    capture_output=True,
    text=True,
).stdout.split()


# Each, also those that are not there; the other tests are about those that are.
EACH = [
    pytest.param(each, marks=pytest.mark.skipif(each not in THERE, reason=f"no {each} there")) for each in LIBRARIES
]


@pytest.fixture(params=[each for each in THERE if each in LIBRARIES])
def library(request):
    return request.param


@pytest.fixture
def session(start):
    args = ["--set", "transactions.mode=always", "--set", "limits.memory=6G", "--set", "timeout.grace=0.3"]
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", PYTHON, *args, "-f", "{connection_file}"]
    return (start(argv=argv) if PYTHON else start(args=args)).client


@pytest.fixture
def used(session, library):
    """A session that has used it; (client, the value)."""
    c = session
    made = c.run(LIBRARIES[library], timeout=180)
    assert made.ok, made.content
    value = c.run("work()", timeout=180)
    assert value.ok, value.content
    return c, value.result


@pytest.mark.parametrize("library", EACH)
def test_it_goes_on(used, library):
    c, value = used
    for how in DEATHS:
        died = die(c, how)
        assert died.about["state"] == "restored", died.content
        assert "threads" not in died.content["evalue"], died.content
        after = c.run("work()", timeout=60)
        assert after.result == value, after.content


def test_in_a_branch(used, library):
    if library == "multiprocessing":
        pytest.skip("processes are the main line's")
    c, value = used
    for _ in range(2):
        made = c.request("cellblock_branch_request", {}, channel="control").content
        cell = c.start("work()", header=c.header("execute_request", subshell_id=made["subshell_id"]))
        assert c.run("work()", timeout=60).result == value
        assert c.finish(cell).result == value


def test_again_and_again(used, library):
    c, value = used
    for _ in range({"asyncio": 50, "concurrent.futures": 50, "polars": 20}.get(library, 5)):
        assert die(c, "exit").about["state"] == "restored"
    assert c.run("work()", timeout=60).result == value


def test_a_pool_beside_what_spawn_and_forkserver_use(session):
    """These are Python's own ways from 3.14 on: a folder, and a tracker of names. A new tracker knows no old name."""
    c = session
    made = "import multiprocessing as m, os, signal; from multiprocessing import resource_tracker as t\n"
    made += "folder, pool, lock = m.util.get_temp_dir(), m.get_context('fork').Pool(2), m.get_context('spawn').Lock()\n"
    made += "os.kill(t._resource_tracker._pid, signal.SIGKILL)"  # else it may end first, and clean up the lock
    assert c.run(made, timeout=60).ok
    assert die(c, "exit").about["state"] == "restored"
    assert c.run("pool.map_async(abs, [-2]).get(60)", timeout=90).result == "[2]"
    ended = c.run("del lock; t._resource_tracker._stop()")
    assert ended.ok and not ended.text("stderr"), ended


@pytest.mark.skipif("grpc" not in THERE, reason="no grpc there")
def test_grpc_in_a_branch(session):
    """The main line has the port: what calls there comes to that, from both sides, again and again."""
    c = session
    assert c.run(GRPC).ok and c.run("call(b'ab', timeout=60)").result == "b'abab'"
    for _ in range(2):
        made = c.request("cellblock_branch_request", {}, channel="control").content
        again = "call(%r, timeout=60, wait_for_ready=True)"
        header = c.header("execute_request", subshell_id=made["subshell_id"])
        cell = c.start(again % b"branch", header=header)
        assert c.run(again % b"main", timeout=90).result == "b'mainmain'"
        there = c.finish(cell, 90)
        assert there.result == "b'branchbranch'", there.content
        ended = c.request("delete_subshell_request", {"subshell_id": made["subshell_id"]}, channel="control").content
        assert ended["status"] == "ok", ended
    assert c.run("call(b'ab', timeout=60)").result == "b'abab'"


@pytest.mark.skipif("grpc" not in THERE, reason="no grpc there")
def test_grpc_serves_on(session):
    """Connections do not come back, which is said; the server listens again, and the client connects by itself."""
    c = session
    assert c.run(GRPC).ok and c.run("call(b'ab', timeout=60)").result == "b'abab'"
    for how in DEATHS:
        died = die(c, how)
        assert died.about["state"] == "restored" and "come back: 2 sockets" in died.content["evalue"], died.content
        again = c.run("call(b'ab', timeout=60, wait_for_ready=True)", timeout=90)
        assert again.result == "b'abab'", again.content
    made = "server.stop(0).wait(60); server, call = serve(); call(b'ab', timeout=60)"
    assert c.run(made, timeout=90).result == "b'abab'"


def test_servers_listen_again(session):
    """Where they did. In a branch the main line has the ports: servers there wait in vain, and use no processor."""
    c = session
    served = r"[b'hello', b'hello', b'once', b'AB\n']"
    assert c.run(SERVERS).ok and c.run("work()").result == served
    for how in DEATHS:
        died = die(c, how)
        assert died.about["state"] == "restored", died.content  # a connection may just have been at its end
        assert c.run("work()", timeout=60).result == served
    made = c.request("cellblock_branch_request", {}, channel="control").content
    header = c.header("execute_request", subshell_id=made["subshell_id"])
    rest = "t = time.process_time(); time.sleep(0.5); time.process_time() - t < 0.25"
    cell = c.finish(c.start(rest, header=header))
    assert cell.result == "True" and not cell.text("stderr"), cell
    places = "{s.getsockname()[0] for s in (*(each.socket for each in servers), woken, *upper.sockets)}"
    cell = c.finish(c.start(places, header=header))  # at no wider an address than before
    assert ast.literal_eval(cell.result) == {"127.0.0.1", "::1"}, cell
    assert c.run("servers[0].shutdown(); servers[0].server_close()").ok
    again = "servers[0] = http.server.ThreadingHTTPServer(('127.0.0.1', servers[0].server_port), Hello)\n"
    again += "threading.Thread(target=servers[0].serve_forever, daemon=True).start(); work()"
    assert c.run(again).result == served


@pytest.mark.skipif("distributed" not in THERE, reason="no distributed there")
def test_a_cluster_of_dask_goes_on(session):
    """LocalCluster of processes: what works is dead, is missed, and made anew by the cluster itself."""
    c = session
    assert c.run(CLUSTER % True, timeout=90).ok and c.run("work(7)", timeout=90).result == "7"
    for how in DEATHS:
        assert die(c, how).about["state"] == "restored"
        again = c.run("work(8)", timeout=90)
        assert again.result == "8", again.content


@pytest.mark.skipif("distributed" not in THERE, reason="no distributed there")
def test_a_cluster_of_dasks_threads_is_made_anew(session):
    """It looks at its process's number: docs/transactions.md."""
    c = session
    assert c.run(CLUSTER % False, timeout=90).ok and c.run("work(7)", timeout=90).result == "7"
    for how in "exit", "segfault":
        assert die(c, how).about["state"] == "restored"
        late = c.run("work(8, 3)", timeout=90)
        assert late.content.get("ename") in ("ValueError", "TimeoutError"), late.content
        anew = c.run("client = begin(); work(9)", timeout=90)
        assert anew.result == "9", anew.content


@pytest.mark.skipif("zmq" not in THERE, reason="no zmq there")
def test_zmq_begins_anew(session):
    """libzmq looks at its process's number: what was made before is closed, and its threads use no processor."""
    c = session
    assert c.run(ZMQ).ok and c.run("work()").result == "b'seven'"
    for how in DEATHS:
        assert die(c, how).about["state"] == "restored"
        assert c.run("work()").content["ename"] == "ZMQError"
        assert c.run("here = begin(); work()").result == "b'seven'"
    waiting = "import threading, time; t = time.process_time(); time.sleep(0.5); time.process_time() - t < 0.25"
    assert c.run(waiting).result == "True"
