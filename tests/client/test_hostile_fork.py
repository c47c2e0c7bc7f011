"""A child of the program holds what its parent's kernels could be ended with: it may use none of it."""

import asyncio
import os
import threading

import pytest

import cellblock
import kernels

pytestmark = [pytest.mark.cellblock_only("a fork's kernels")]


def in_a_child(work):
    """The name of the class of what `work` raises in a child of this process, and its text; or "done"."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            said = "done"
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(w, said.encode()[:4000])
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        said = f.read().decode()
    os.waitpid(pid, 0)
    return said


def with_a_loop(work):
    """Runs a coroutine in a child, which has its parent's loop in its only thread."""
    def run():
        raised = []

        def thread():
            try:
                asyncio.run(work())
            except BaseException as e:
                raised.append(e)

        t = threading.Thread(target=thread)
        t.start(), t.join()
        if raised:
            raise raised[0]
    return run


def test_a_pool(nothing_left):
    folder = nothing_left / "pool"
    kernels.let_in(folder)

    def lease():
        with pool.lease(wait=30) as sb:
            sb.run("1")

    with cellblock.Pool("agent", size=1, workspace=folder) as pool:
        for work in (lease, pool.close, pool.start):
            assert in_a_child(work).startswith("ForkError: this pool belongs to"), work
        with pool.lease(wait=60) as sb:
            pid = sb.kernel.pid
            for work in (sb.close, lambda: sb.run("1"), lease, pool.close, lambda: sb.files):
                assert in_a_child(work).split(":")[0] in ("ForkError", "AttributeError"), work
            assert sb.run("40 + 2").repr == "42" and sb.kernel.pid == pid


def test_an_async_sandbox(nothing_left):
    folder = nothing_left / "async"
    kernels.let_in(folder)

    async def main():
        async with cellblock.AsyncSandbox("agent", workspace=folder) as sb:
            await sb.run("x = 42")
            for work in (sb.close, lambda: sb.run("1"), sb.reset, sb.usage, sb.start, sb.__aexit__):
                assert in_a_child(with_a_loop(work)).startswith("ForkError: this sandbox belongs to"), work
            assert (await sb.run("x")).repr == "42"

    asyncio.run(main())


def test_what_was_never_started_is_whose_process_starts_it(nothing_left):
    how = {"policy": {"workspace.mode": "tmpfs"}}
    sandbox, pool = cellblock.Sandbox("agent", **how), cellblock.Pool("agent", size=1, **how)
    with cellblock.Sandbox("agent", **how) as other:  # the background thread runs here, and not there
        other.run("1")

        def work():
            with sandbox as sb, pool, pool.lease(wait=60) as leased:
                assert sb.run("6 * 7").repr == leased.run("6 * 7").repr == "42"

        assert in_a_child(work) == "done"
    with sandbox as sb:
        assert sb.run("6 * 7").repr == "42"
