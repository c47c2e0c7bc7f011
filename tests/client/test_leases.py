"""What a program holds ends with it, however it ends; and a program that stands still for a while has lost nothing."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest

import cellblock
import kernels

MANY = os.environ.get("CELLBLOCK_TEST_MANY") == "1"
CLIENT = r"""
import asyncio, json, os, sys, time
from cellblock import AsyncSandbox, Pool, Sandbox
way, where, work = sys.argv[1:]
os.chdir(work)
OPTIONS = {"policy": {"workspace.mode": "tmpfs"}}

def say(**what):
    print(json.dumps(what), flush=True)

def serve(sb, at_last=lambda: None):
    sb.run("import os, subprocess\nkept = 1\nsubprocess.Popen(['sleep', '10000'])", check=True)
    transport = sb.kernel.session.connected.transport
    folder = None if where else os.path.dirname(os.path.dirname(sb.kernel.connection_file))
    at_last()
    say(ready=True, folder=folder, kernel=getattr(transport, "_kernel", None))
    for line in sys.stdin:
        try:
            say(ok=True, repr=sb.run(line).repr)
        except Exception as e:
            say(ok=False, error=f"{type(e).__name__}: {e}")

async def serve_async():
    async with AsyncSandbox("agent", **OPTIONS) as sb:
        await sb.run("import subprocess\nkept = 1\nsubprocess.Popen(['sleep', '10000'])", check=True)
        say(ready=True, folder=os.path.dirname(os.path.dirname(sb.kernel.connection_file)), kernel=None)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            say(ok=True, repr=(await sb.run(line)).repr)

if way == "sandbox":
    serve(Sandbox("agent", **OPTIONS))
elif way == "async":
    asyncio.run(serve_async())
elif way == "pool":
    with Pool("agent", size=2, **OPTIONS) as pool, pool.lease(ttl=3600) as sb:
        while len(pool._pool._ready) < 1:
            time.sleep(0.05)
        serve(sb)
elif way == "lease":
    with Pool("agent", size=1, **OPTIONS) as pool:
        lease = pool.lease(ttl=3600)
        with lease as sb:
            serve(sb, lambda: lease.renew(1.5))
        with pool.lease(ttl=3600) as sb:
            serve(sb)
else:
    serve(Sandbox.connect(where, token="secret"))
"""
WAYS = ["sandbox", "async", "pool", "file", "gateway", "server"]


class Client:
    """A program of its own that holds a sandbox, and answers what it is told."""

    def __init__(self, way, where, work):
        command = [sys.executable, "-c", CLIENT, way, where or "", os.fspath(work)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.about = self.heard()
        except BaseException:
            self.kill()
            raise

    def heard(self):
        line = self.popen.stdout.readline()
        assert line, self.popen.wait()
        return json.loads(line)

    def tell(self, code):
        self.popen.stdin.write(code + "\n")
        self.popen.stdin.flush()

    def run(self, code):
        self.tell(code)
        return self.heard()

    def family(self):
        return kernels.below(self.popen.pid)

    def stop(self):
        self.popen.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.popen.pid, os.WSTOPPED)

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()


def until(met):
    """Waits for what nobody tells of."""
    deadline = time.monotonic() + kernels.DEADLINE
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def mounts(own):
    """All but those of other tests, which run beside this one and have folders of pytest's other than `own`."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        found = {line.split(" ")[4] for line in f}
    return {m for m in found if "/pytest-of-" not in m or m.startswith(own)}


def listed(server):
    request = urllib.request.Request(f"{server}/api/kernels", headers={"Authorization": "token secret"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [k["id"] for k in json.load(answer)]


@pytest.fixture(params=WAYS)
def held(request, nothing_left, start):
    """A client that has started, and the server behind which its kernel is, if it is."""
    way, where, work = request.param, None, nothing_left / f"work-{request.node.name[:50]}"
    kernels.let_in(work)
    if way == "file":
        where = os.fspath(start().file)
    elif way in ("gateway", "server"):
        where = request.getfixturevalue(way)
    before = {p.pid for p in kernels.below(os.getpid())}, mounts(str(nothing_left.parent))
    client = Client(way, where, work)
    client.way, client.where, client.before = way, where, before
    yield client
    client.kill()


def test_nothing_is_left_of_a_killed_client(held, nothing_left):
    known, mounted = held.before
    new = [p for p in kernels.below(os.getpid()) if p.pid not in known]
    family = [p for p in new if not kernels.is_zygote(p.pid)]  # which a kernel has started for the next ones
    if held.way == "file":
        family = [psutil.Process(held.popen.pid)]
    assert held.run("kept")["repr"] == "1" and family
    if held.way in ("gateway", "server"):
        assert held.about["kernel"] in listed(held.where)
    groups = kernels.groups_of(family)
    held.kill()
    left = [p for p in kernels.wait_gone(family) if not kernels.is_zygote(p.pid)]  # one may just have been started
    assert left == []
    if held.about["folder"] is not None:
        until(lambda: not os.path.exists(held.about["folder"]))
    if held.way in ("gateway", "server"):
        until(lambda: held.about["kernel"] not in listed(held.where))
    if held.way == "file":  # it was connected to: it stays, with its state
        with cellblock.Sandbox.connect(held.where) as sb:
            assert sb.run("kept").repr == "1"
    until(lambda: not any(g.exists() for g in groups))
    assert mounts(str(nothing_left.parent)) <= mounted


def test_a_client_that_stands_still_keeps_what_it_has(held):
    assert held.run("kept += 1; kept")["repr"] == "2"
    held.stop()
    held.tell("kept + 40")  # and is asked meanwhile
    held.popen.send_signal(signal.SIGCONT)
    assert held.heard()["repr"] == "42"
    held.tell("import time; time.sleep(1); kept")
    held.stop()
    held.popen.send_signal(signal.SIGCONT)
    assert held.heard()["ok"] and held.run("kept")["repr"] == "2"


def test_a_lease_that_ended_while_its_client_stood_still(nothing_left):
    work = nothing_left / "lease"
    kernels.let_in(work)
    client = Client("lease", None, work)
    try:
        assert client.about["ready"]
        client.stop()
        time.sleep(2)  # longer than the lease
        client.popen.send_signal(signal.SIGCONT)
        said = client.run("kept")
        assert not said["ok"] and "ended after its 1.5 seconds; renew" in said["error"], said
        client.popen.stdin.close()  # its end: the next lease, of another sandbox
        assert client.heard()["folder"]
    finally:
        client.kill()


def test_a_keeper_that_was_killed_does_no_harm(nothing_left):
    """Then the next start removes what is left."""
    work = nothing_left / "keeper"
    kernels.let_in(work)
    client = Client("sandbox", None, work)
    family = client.family()
    (keeper,) = [p for p in family if any("_keeper" in word for word in kernels.words_of(p))]
    keeper.kill()
    assert kernels.wait_gone([keeper]) == []
    assert client.run("kept")["repr"] == "1"
    client.kill()
    assert kernels.wait_gone(family) == []
    with cellblock.Sandbox("agent", workspace=work):
        pass
    assert not os.path.exists(client.about["folder"])


def test_no_sandbox_is_handed_out_twice(nothing_left, monkeypatch):
    """Whatever happens to those who wait and to those who have one."""
    work = nothing_left / "twice"
    kernels.let_in(work)
    monkeypatch.chdir(work)
    seen, chance = [], random.Random(7)

    async def one(pool):
        lease = pool.lease(ttl=chance.choice([0.3, 3600, 3600]))
        try:
            async with lease as sb:
                seen.append(sb.kernel.pid)
                assert (await sb.run("'mark' in globals()")).repr == "False"
                await sb.run("mark = 1")
                await asyncio.sleep(chance.random() * 0.3)
        except cellblock.SandboxError as e:
            assert "ended after its 0.3 seconds" in str(e)

    async def main():
        async with cellblock.AsyncPool("agent", size=3, policy={"workspace.mode": "tmpfs"}) as pool:
            tasks = [asyncio.ensure_future(one(pool)) for _ in range(500 if MANY else 12)]
            for task in chance.sample(tasks, len(tasks) // 3):
                await asyncio.sleep(chance.random() * 0.5)
                task.cancel()
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                assert done is None or isinstance(done, asyncio.CancelledError), repr(done)

    asyncio.run(main())
    assert len(set(seen)) == len(seen) >= 4
