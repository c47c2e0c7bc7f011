"""Pool: sandboxes that are started ahead; each lease finds a clean one, and leaves nothing behind."""

import asyncio
import os
import signal
import threading

import pytest

pytest.importorskip("msgspec")
from cellblock import (  # noqa: E402
    AsyncPool, AsyncSandbox, CellError, Pool, PolicyError, SandboxClosedError, SandboxError, _pool,
)

import eager  # noqa: E402

pytestmark = pytest.mark.once
TMPFS = {"policy": {"workspace.mode": "tmpfs"}}
MARK = """
import os, pathlib, subprocess
mark = 1
os.environ["MARK"] = "1"
pathlib.Path("/tmp/mark").write_text("x"); pathlib.Path("mark").write_text("x"); pathlib.Path("/dev/shm/mark").touch()
subprocess.Popen(["sleep", "1000"])
"""
LOOK = """
import os, pathlib
[k for k in ("mark",) if k in globals()], os.environ.get("MARK"), os.listdir("/tmp"), os.listdir("."), \
os.listdir("/dev/shm"), [p for p in os.listdir("/proc") if p.isdigit() and
    b"sleep" in pathlib.Path("/proc", p, "cmdline").read_bytes()], len(In), ready
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)



def test_each_lease_is_clean(workspace):
    with Pool("agent", size=2, setup="ready = 'yes'", **TMPFS) as pool:
        seen = []
        for _ in range(5):
            with pool.lease() as sb:
                seen.append(sb.run(LOOK, check=True).repr)
                sb.run(MARK, check=True)
        assert seen == [seen[0]] * 5 and "'yes'" in seen[0] and "[], None" in seen[0], seen
        with pytest.raises(SandboxError, match="lease of this sandbox has ended"):
            sb.run("1")


def test_leases_run_beside_each_other_and_wait_for_a_place(workspace):
    with Pool("agent", size=2, **TMPFS) as pool:
        with pool.lease() as a, pool.lease() as b:
            a.run("x = 1", check=True)
            assert b.run("'x' in globals()", check=True).repr == "False"
            with pytest.raises(TimeoutError, match="all 2 are in use"):
                with pool.lease(wait=0.05):
                    pass
            got = []

            def waits():
                with pool.lease() as c:
                    got.append(c.run("6 * 7", check=True).repr)

            thread = threading.Thread(target=waits)
            thread.start()
        thread.join(120)
        assert got == ["42"]


def test_a_lease_ends_at_its_time_and_can_be_renewed(workspace):
    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            lease = pool.lease(ttl=3600)
            async with lease as sb:
                await sb.run("x = 1", check=True)
                lease.renew()
                lease.renew(0.05)
                with pytest.raises(SandboxError, match="ended after its 0.05 seconds; renew"):
                    await sb.run("import time\nwhile True: time.sleep(1)")
                with pytest.raises(SandboxError, match="ended after its 0.05 seconds"):
                    await sb.run("1")
                with pytest.raises(SandboxClosedError, match="lease has ended"):
                    lease.renew()
            with pytest.raises(SandboxError, match="used already"):
                await lease.__aenter__()
            async with pool.lease() as again:
                assert (await again.run("'x' in globals()", check=True)).repr == "False"

    asyncio.run(main())


def test_a_broken_sandbox_is_replaced(workspace):
    async def main():
        async with AsyncPool("agent", size=2, **TMPFS) as pool:
            while len(pool._ready) < 2:
                await asyncio.sleep(0.01)
            for sb in pool._ready:
                sb._session._gone("broken by the test")
            for _ in range(3):
                async with pool.lease() as sb:
                    assert (await sb.run("1 + 1", check=True)).repr == "2"

    asyncio.run(main())


def test_what_a_sandbox_fails_with_is_raised_and_tried_again_later(workspace, tmp_path):
    with pytest.raises(CellError, match="ZeroDivisionError"):
        Pool("agent", size=2, setup="1 / 0", **TMPFS).start()
    with pytest.raises((PolicyError, SandboxError), match="nonsense"):
        Pool("nonsense", size=2).start()
    for size in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="size"):
            Pool(size=size)
    pool = Pool("agent", size=1)
    with pytest.raises(SandboxClosedError, match="was not started"):
        pool.lease().__enter__()
    with pytest.raises(ValueError, match="ttl"):
        pool.lease(ttl=0)


def test_sandboxes_that_fail_at_once_are_not_made_without_end():
    """Where tasks are eager each has failed before the next one is counted."""
    made = []

    def make():
        made.append(1)
        if len(made) == 100:
            pool._open = False
        raise SandboxError("not to be had")

    async def main():
        asyncio.get_running_loop().set_task_factory(eager.factory("AsyncPool._start_one"))
        with pytest.raises(SandboxError, match="not to be had"):
            await pool.start()

    pool = AsyncPool(size=2, make=make)
    asyncio.run(main())
    assert len(made) <= 2


def test_the_pool_can_be_closed_while_leased(workspace):
    pool = Pool("agent", size=2, **TMPFS).start()
    lease = pool.lease()
    sb = lease.__enter__()
    pool.close()
    with pytest.raises(SandboxError, match="the pool was closed"):
        sb.run("1")
    lease.__exit__(None, None, None)
    pool.close()


def test_cancelled_waits_lose_no_sandbox(workspace):
    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            for steps in range(20):
                lease = pool.lease()
                task = asyncio.ensure_future(lease.__aenter__())
                for _ in range(steps):
                    await asyncio.sleep(0)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    await lease.__aexit__(None, None, None)
            async with pool.lease() as sb:
                assert (await sb.run("1", check=True)).repr == "1"

    asyncio.run(main())


def test_a_lease_as_the_pool_is_closed(workspace):
    """It looks whether a sandbox is alive just then: nobody would answer it afterwards."""

    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            (sb,) = pool._ready
            asked, gate, usage = asyncio.Event(), asyncio.Event(), sb.usage

            async def slow():
                asked.set()
                await gate.wait()
                return await usage()

            sb.usage = slow
            lease = asyncio.ensure_future(pool.lease().__aenter__())
            await asked.wait()
            closing = asyncio.ensure_future(pool.close())
            while pool._leased:
                await asyncio.sleep(0)
            gate.set()
            with pytest.raises(SandboxClosedError, match="the pool was closed"):
                await asyncio.wait_for(lease, 60)
            await closing

    asyncio.run(main())


def test_a_pool_that_starts_anew_as_it_ends_has_no_more_than_its_size(workspace):
    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            await asyncio.gather(pool.close(), pool.start())
            async with pool.lease():
                with pytest.raises(TimeoutError, match="all 1 are in use"):
                    await pool.lease(wait=0).__aenter__()
                assert not pool._starting

    asyncio.run(main())


def test_a_sandbox_that_does_not_answer_is_replaced(workspace, monkeypatch):
    monkeypatch.setattr(_pool, "LIVES", 0.5, raising=False)

    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            stopped = pool._ready[0].kernel.pid
            os.kill(stopped, signal.SIGSTOP)
            async with pool.lease() as sb:
                assert (await sb.run("1", check=True)).value == 1 and sb.kernel.pid != stopped

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_short_wait_for_a_sandbox_that_does_not_answer(workspace, monkeypatch):
    """It is looked after all the same, and is the next one's when it answers."""
    monkeypatch.setattr(_pool, "LIVES", 3600.0)
    monkeypatch.setattr(_pool, "LOOK", 0.1, raising=False)

    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            stopped = pool._ready[0].kernel.pid
            os.kill(stopped, signal.SIGSTOP)
            try:
                with pytest.raises(TimeoutError, match="one that stands ready does not answer"):
                    await pool.lease(wait=0).__aenter__()
            finally:
                os.kill(stopped, signal.SIGCONT)
            async with pool.lease() as sb:
                assert (await sb.run("1", check=True)).value == 1 and sb.kernel.pid == stopped

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_lease_whose_time_is_over_can_not_be_renewed(workspace):
    async def main():
        async with AsyncPool("agent", size=1, **TMPFS) as pool:
            lease = pool.lease(ttl=3600)
            async with lease:
                lease._expire(3600)
                with pytest.raises(SandboxClosedError, match="lease has ended"):
                    lease.renew()

    asyncio.run(main())


def test_a_lease_that_came_too_early_says_so(workspace):
    async def main():
        gate = asyncio.Event()

        class Slow(AsyncSandbox):
            async def start(self):
                if made:
                    await gate.wait()
                made.append(self)
                return await super().start()

        made = []
        async with AsyncPool(size=2, make=lambda: Slow("agent", **TMPFS)) as pool:
            async with pool.lease():
                with pytest.raises(TimeoutError, match="1 of 2 are in use, the others are not ready"):
                    await pool.lease(wait=0.01).__aenter__()
            gate.set()

    asyncio.run(main())
