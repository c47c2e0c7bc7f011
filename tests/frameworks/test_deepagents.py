"""cellblock.deepagents: whole agents with a scripted model, and what hostile commands and paths get."""

import asyncio
import os
from pathlib import Path

import pytest

deepagents = pytest.importorskip("deepagents", reason="deepagents needs Python 3.11")

import cellblock  # noqa: E402
import kernels  # noqa: E402
import pages  # noqa: E402
from cellblock.deepagents import CellblockSandbox  # noqa: E402
from deepagents import create_deep_agent  # noqa: E402
from deepagents.backends import CompositeBackend  # noqa: E402
from scripted import Scripted  # noqa: E402

SECRET = "key-of-the-host-4711"


@pytest.fixture(scope="module")
def backend(nothing_left):
    with CellblockSandbox() as made:
        yield made


def works(backend):
    done = backend.execute("echo fine; cat /workspace/kept")
    return (done.output, done.exit_code, done.truncated) == ("fine\nkept", 0, False)


@pytest.fixture
def kept(backend):
    backend.upload_files([("/workspace/kept", b"kept")])
    yield backend
    assert works(backend)


def told(agent, how, text="go"):
    asked = {"messages": [{"role": "user", "content": text}]}
    done = agent.invoke(asked) if how == "sync" else asyncio.run(agent.ainvoke(asked))
    return done["messages"][-1].content, [str(m.content) for m in done["messages"] if m.type == "tool"]


# whole agents


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_agent(backend, how):
    file = f"/workspace/{how}/a b.py"
    model = Scripted(
        [("write_file", {"file_path": file, "content": "print('one')\nprint('two')\n"})],
        [("read_file", {"file_path": file})],
        [("edit_file", {"file_path": file, "old_string": "'two'", "new_string": "2 * 21"})],
        [("grep", {"pattern": "42"}), ("grep", {"pattern": "2 * 21", "path": f"/workspace/{how}"})],
        [("glob", {"pattern": "*.py", "path": f"/workspace/{how}"}), ("ls", {"path": f"/workspace/{how}"})],
        [("execute", {"command": f"python3 '{file}'; echo no >&2; exit 3"})],
        [("delete", {"file_path": file})],
        [("read_file", {"file_path": file})],
        "done",
    )
    answer, said = told(create_deep_agent(model=model, backend=backend), how)
    assert answer == "done" and len(said) == 10, said
    assert "two" in said[1] and file in said[4] and file in said[5] and file in said[6]
    assert "one\n42\nno\n" in said[7] and "exit code 3" in said[7]
    assert "not_found" in said[9] or "not found" in said[9]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_long_output_does_not_fill_the_model(backend, how):
    many = "seq 1 300000"
    model = Scripted([("execute", {"command": many})], "done")
    _, said = told(create_deep_agent(model=model, backend=backend), how)
    assert len(said[0]) < 100_000 and said[0].startswith("1\n2\n") and "truncated" in said[0]

    whole = CompositeBackend(default=backend, routes={}, artifacts_root="/tmp/agent")
    model = Scripted([("execute", {"command": many})], "done")
    _, said = told(create_deep_agent(model=model, backend=whole), how)
    assert len(said[0]) < 10_000 and "/tmp/agent/large_tool_results/call_1_0" in said[0]
    assert backend.execute("tail -n 1 /tmp/agent/large_tool_results/call_1_0").output == "300000\n"


def test_the_page(monkeypatch):
    model = Scripted([("execute", {"command": "python3 -c 'print(21 * 2)'"})], "It is 42.")
    monkeypatch.setattr(deepagents, "create_deep_agent", lambda model, **how: create_deep_agent(model=model_, **how))
    model_, printed = model, []
    for code in pages.blocks("deepagents.md")[:1]:
        exec(compile(code, "deepagents.md", "exec"), {"print": printed.append})
    assert printed == ["It is 42."] and "42\n" in str(model.heard[1][-1].content)


# commands


def test_commands(kept):
    done = kept.execute("echo out; echo err >&2; echo last; exit 7")
    assert (done.output, done.exit_code, done.truncated) == ("out\nerr\nlast\n", 7, False)
    assert kept.execute("[[ a == a* ]] && echo $0").output == "bash\n"
    assert kept.execute("kill -9 $$").exit_code == 137
    assert kept.execute("no_such_program_x").exit_code == 127
    assert "non-empty" in kept.execute("").output and "null character" in kept.execute("a\0b").output
    assert kept.execute("read x; echo \"[$x]\"").output == "[]\n"  # no input to wait for
    assert kept.execute("printf '\\377'").exit_code == 0


def test_long_commands(kept):
    text = "ä" * 200_000
    assert kept.execute(f"read x; x='{text}'; echo ${{#x}} \"[$0]\"; exit 4").output.startswith("200000 ")
    kept.write("/workspace/long", "(" + "😀" * 12_000 + ")")
    assert kept.edit("/workspace/long", "😀" * 12_000, "é" * 12_000).occurrences == 1
    assert kept.download_files(["/workspace/long"])[0].content.decode() == "(" + "é" * 12_000 + ")"


@pytest.mark.parametrize(
    "loop", ["while :; do :; done", "trap '' TERM; while :; do :; done", "sleep 1000 & sleep 1000"]
)
def test_an_endless_command(kept, loop):
    for limit in (1, 10, 30):  # on a busy machine a shell may not have said it by then
        done = kept.execute(f"echo begun; {loop}", timeout=limit)
        if "begun" in done.output:
            break
    assert done.exit_code == 124 and done.output == f"begun\nError: Command timed out after {limit} seconds."


def test_the_time_limit_of_ones_own(nothing_left):
    with CellblockSandbox(timeout=1) as backend:
        assert backend.execute("sleep 1000").exit_code == 124
        assert backend.execute("sleep 0; echo ok", timeout=50).output == "ok\n"
    with pytest.raises(ValueError, match="allowed are seconds above 0"):
        CellblockSandbox(timeout=0)


def test_memory(kept):
    done = kept.execute("python3 -c 'x = bytearray(4 << 30)'")
    assert done.exit_code != 0
    bomb = "import mmap\nm = mmap.mmap(-1, 4 << 30)\nfor i in range(0, 4 << 30, 4096): m[i] = 1"
    done = kept.execute(f'python3 -c "{bomb}"')
    assert done.exit_code == 137 and "Error: " in done.output


def test_much_output(kept):
    done = kept.execute("head -c 50000000 /dev/zero | tr '\\0' x")
    assert done.exit_code == 0 and done.truncated and 4 << 20 <= len(done.output) < 5 << 20


def test_a_cancelled_command(backend):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(backend.aexecute("sleep 1000", timeout=1000), 0.1)
        while "sleep 1000" in (await backend.aexecute("ps ax")).output:  # it has two seconds to end
            pass
        one, two = await asyncio.gather(backend.aexecute("echo 1"), backend.aexecute("echo 2"))
        return one.output + two.output

    assert asyncio.run(main()) == asyncio.run(main()) == "1\n2\n"


# files


@pytest.mark.parametrize("folder", ["/workspace/deep/er", "/tmp/deep/er"])
def test_files_of_any_name_and_content(kept, folder):
    names = ["a b", "new\nline", "ünï-😀", "-rf", "'; touch x #", "$(id)", "a" * 255]
    files = [(f"{folder}/{name}", bytes(range(256)) * n) for n, name in enumerate(names)]
    files.append((f"{folder}/large", os.urandom(3_000_001)))
    assert [r.error for r in kept.upload_files(files)] == [None] * len(files)
    got = kept.download_files([path for path, _ in files])
    assert [(r.path, r.content, r.error) for r in got] == [(path, data, None) for path, data in files]
    assert kept.upload_files([(f"{folder}/large", b"short")])[0].error is None
    assert kept.download_files([f"{folder}/large"])[0].content == b"short"


@pytest.mark.parametrize("folder", ["/workspace/odd", "/tmp/odd"])
def test_what_is_no_file(kept, folder):
    made = f"mkdir -p {folder}/d; mkfifo {folder}/p; echo x >{folder}/f; echo x >{folder}/s; chmod 000 {folder}/s"
    assert kept.execute(made).exit_code == 0
    paths = [f"{folder}/{name}" for name in ("d", "p", "none", "f/x", "s", "a" * 256)]
    paths += ["rel", "", "/a\0b", "/a\udc80"]
    words = [r.error for r in kept.download_files(paths)]
    assert words[:2] == ["is_directory", "permission_denied"] and words[2] == "file_not_found"
    assert words[4] == "permission_denied" and words[6:8] == ["invalid_path"] * 2 and all(words)
    words = [r.error for r in kept.upload_files([(path, b"x") for path in paths])]
    assert words[0] == "is_directory" and words[1] and words[2] is None and words[4] == "permission_denied"
    assert words[6:8] == ["invalid_path"] * 2 and words[3] and words[5] and words[8] and words[9]
    assert kept.upload_files([("/etc/passwd", b""), ("/new", b"")])[1].error


def test_nothing_of_the_host(kept, nothing_left, monkeypatch):
    secret = nothing_left / "secret"
    secret.write_text(SECRET)
    kernels.let_in(nothing_left)
    monkeypatch.setenv("HOST_KEY", SECRET)
    up = "/workspace" + "/.." * 9
    kept.execute(f"ln -sfn {secret} /workspace/link; ln -sfn {secret} /tmp/link; ln -sfn / /workspace/root")
    paths = [str(secret), f"{up}{secret}", "/workspace/link", "/tmp/link", f"/workspace/root{secret}", "/etc/shadow",
             "/root/.ssh/id_rsa", "/proc/1/environ", f"/proc/{os.getpid()}/environ"]
    for got in kept.download_files(paths):
        assert got.error and not got.content, got
    for path, got in zip(paths[:5], kept.upload_files([(path, b"overwritten") for path in paths[:5]])):
        assert secret.read_text() == SECRET, (path, got)
    for command in ("env", f"cat {secret}", "cat /proc/*/environ", f"grep -rs {SECRET} /workspace /tmp /home /run"):
        assert SECRET not in kept.execute(command).output, command
    with CellblockSandbox() as other:
        assert SECRET not in other.execute("env; cat /proc/*/environ").output
    assert Path("/etc/passwd").read_text() != kept.download_files(["/etc/passwd"])[0].content.decode()


# the sandbox


def test_two_at_once_and_their_end(nothing_left):
    with CellblockSandbox() as one, CellblockSandbox() as two:
        assert one.id != two.id and one.id == one.id and one.id.startswith("cellblock-")
        one.write("/tmp/x", "1")
        two.write("/tmp/x", "2")
        assert (one.execute("cat /tmp/x").output, two.execute("cat /tmp/x").output) == ("1", "2")
        pids = [one.sandbox.kernel.pid, two.sandbox.kernel.pid]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(cellblock.SandboxError):
        one.execute("true")


def test_a_sandbox_of_ones_own(nothing_left):
    kernels.let_in(nothing_left / "own")
    (nothing_left / "own" / "data").write_text("from outside")
    with cellblock.Sandbox("agent", workspace=nothing_left / "own") as sb:
        with CellblockSandbox(sb) as backend:
            assert backend.execute("cat data").output == "from outside"
            backend.write("/workspace/new", "by the agent")
        assert sb.run("open('new').read()").value == "by the agent"
        assert [c.path for c in sb.changes()] == ["new"]
    with pytest.raises(ValueError, match="memory"):
        CellblockSandbox(sb, memory="1G")


def test_a_dead_kernel_is_no_answer_for_the_model(nothing_left):
    with CellblockSandbox() as backend:
        os.kill(backend.sandbox.kernel.pid, 9)
        model = Scripted([("execute", {"command": "echo hi"})], "never said")
        with pytest.raises(cellblock.SandboxError):
            told(create_deep_agent(model=model, backend=backend), "sync")
        with pytest.raises(cellblock.SandboxError):
            backend.download_files(["/workspace/x"])
