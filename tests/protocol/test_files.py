"""cellblock_file_request: read, write, list, delete, clean, served inside the jail (docs/messages.md)."""

import json
import os
import time

import pytest
import rawclient

pytestmark = pytest.mark.cellblock_only("a message of cellblock's own")
NAME = "cellblock_file_request"


def ask(client, op, channel="control", buffers=(), patience=None, **content):
    """The reply, after its idle: every request ends with both."""
    msg_id = client.send(NAME, {"op": op, **content}, channel=channel, buffers=buffers)
    reply = client.reply(msg_id, channel, timeout=patience)
    states = [m.content["execution_state"] for m in client.until_idle(msg_id) if m.type == "status"]
    assert (states[0], states[-1]) == ("busy", "idle")
    assert reply.type == "cellblock_file_reply"
    return reply


def refused(client, ename, word, op, **content):
    reply = ask(client, op, **content)
    assert reply.content["status"] == "error" and reply.content["ename"] == ename, reply.content
    assert word in reply.content["evalue"], reply.content
    return reply


@pytest.fixture
def folder(client, request):
    """A folder of the test's own, in the workspace; its path there."""
    name = request.node.name.split("[")[0]
    assert client.run(f"import os; os.makedirs({name!r}, exist_ok=True)").ok
    return name


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_what_is_written_is_read(client, folder, channel):
    path = f"{folder}/{channel}.bin"
    data = bytes(range(256)) * 1000
    written = ask(client, "write", channel, [data[:1000], b"", data[1000:]], path=path)
    assert written.content == {"status": "ok", "size": len(data)}
    read = ask(client, "read", channel, path=path)
    assert read.buffers == [data]
    assert (read.content["size"], read.content["offset"], read.content["length"]) == (len(data), 0, len(data))
    assert client.run(f"open({path!r}, 'rb').read() == bytes(range(256)) * 1000").result == "True"
    os_time = float(client.run(f"os.stat({path!r}).st_mtime").result)
    assert abs(read.content["mtime"] - os_time) < 0.001
    assert ask(client, "write", channel, path=path).content["size"] == 0, "without data the file is empty"


def test_parts(client, folder):
    path = f"{folder}/parts"
    ask(client, "write", buffers=[b"0123456789"], path=path)
    assert ask(client, "write", buffers=[b"xy"], path=path, offset=4).content["size"] == 10
    assert ask(client, "write", buffers=[b"z"], path=path, append=True).content["size"] == 11
    assert ask(client, "write", buffers=[b"!"], path=path, offset=12).content["size"] == 13
    assert ask(client, "read", path=path).buffers == [b"0123xy6789z\0!"]
    assert ask(client, "read", path=path, offset=4, length=3).buffers == [b"xy6"]
    assert ask(client, "read", path=path, offset=100).buffers == [b""]
    assert ask(client, "read", path=path, offset=2**63 - 1).buffers == [b""]


def test_write_of_what_is_not_there(client, folder):
    assert client.run(f"os.symlink('none', '{folder}/link'); os.mkfifo('{folder}/pipe')").ok
    for name in "link", "pipe", "", "../" + folder:
        refused(client, "FileExistsError", "exists", "write", path=f"{folder}/{name}", exclusive=True, buffers=[b"x"])
    path = f"{folder}/new/deep/f"
    reply = ask(client, "write", path=path, exclusive=True, parents=True, buffers=[b"0123"]).content
    assert reply["status"] == "ok" and reply["size"] == 4, reply
    refused(client, "FileExistsError", "exists", "write", path=path, exclusive=True, buffers=[b"x"])
    assert ask(client, "read", path=path).buffers == [b"0123"]
    assert client.run(f"sorted(os.listdir({folder!r}))").result == "['link', 'new', 'pipe']"


def test_list(client, folder):
    client.run(
        f"import socket\nos.chdir({folder!r})\nopen('file', 'w').write('12345')\nos.mkdir('sub')\n"
        "os.symlink('file', 'link')\nos.mkfifo('pipe')\ns = socket.socket(socket.AF_UNIX)\ns.bind('sock')\n"
        "open('späth', 'w').close()\nos.chdir('..')"
    )
    reply = ask(client, "list", path=folder).content
    types = {e["name"]: e["type"] for e in reply["entries"]}
    assert types == {
        "file": "file",
        "sub": "folder",
        "link": "link",
        "pipe": "pipe",
        "sock": "socket",
        "späth": "file",
    }
    assert reply["truncated"] is False
    assert next(e for e in reply["entries"] if e["name"] == "file")["size"] == 5
    assert folder in {e["name"] for e in ask(client, "list").content["entries"]}, "without a path: the workspace"


def test_delete(client, folder):
    client.run(f"os.makedirs('{folder}/a/b/c')\nopen('{folder}/a/b/f', 'w').close()\nos.symlink('a', '{folder}/l')")
    refused(client, "OSError", "not empty", "delete", path=f"{folder}/a")
    assert ask(client, "delete", path=f"{folder}/l").content["deleted"] == 1, "the link, not what it points to"
    assert ask(client, "delete", path=f"{folder}/a/b/c").content["deleted"] == 1
    assert ask(client, "delete", path=f"{folder}/a", recursive=True).content["deleted"] == 3
    assert client.run(f"os.listdir({folder!r})").result == "[]"
    refused(client, "FileNotFoundError", "none", "delete", path=f"{folder}/none")
    refused(client, "OSError", "clean", "delete", path=".", recursive=True)


def test_clean(client, folder):
    client.run(f"os.makedirs('{folder}/x/y/z')\n[open(f'{folder}/x/y/{{i}}', 'w').close() for i in range(600)]")
    refused(client, "MalformedRequestError", "path", "clean")
    reply = ask(client, "clean", path=folder).content
    assert (reply["deleted"], reply["left"], reply["first_left"]) == (603, 0, None)
    assert client.run(f"os.listdir({folder!r})").result == "[]"


def test_clean_without_a_path_empties_a_temporary_workspace(start):
    c = start(args=["--set", "workspace.mode=tmpfs"]).client
    c.run("open('a', 'w').close()")
    assert ask(c, "clean").content["deleted"] == 1
    assert ask(c, "list").content["entries"] == []


def test_parents(client, folder):
    refused(client, "FileNotFoundError", "No such", "write", path=f"{folder}/p/q/f")
    assert ask(client, "write", path=f"{folder}/p/q/f", parents=True).content["status"] == "ok"
    assert client.run(f"os.listdir('{folder}/p/q')").result == "['f']"


MALFORMED = {
    "op missing": ({}, "key"),
    "op unknown": ({"op": "chmod", "path": "x"}, "op"),
    "op a number": ({"op": 1}, "op"),
    "path missing": ({"op": "read"}, "path"),
    "path a number": ({"op": "read", "path": 1}, "path"),
    "path with NUL": ({"op": "read", "path": "a\0b"}, "path: a NUL"),
    "path too long": ({"op": "read", "path": "a/" * 3000}, "path"),
    "offset negative": ({"op": "read", "path": "a", "offset": -1}, "offset"),
    "offset huge": ({"op": "read", "path": "a", "offset": 2**70}, "offset"),
    "offset no number": ({"op": "read", "path": "a", "offset": "1"}, "offset"),
    "length over the limit": ({"op": "read", "path": "a", "length": 2**40}, "limits.message"),
    "flag no flag": ({"op": "delete", "path": "a", "recursive": 1}, "recursive"),
}


@pytest.mark.parametrize("channel", ["control", "shell"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(client, name, channel):
    content, word = MALFORMED[name]
    msg_id = client.send(NAME, content, channel=channel)
    reply = client.reply(msg_id, channel).content
    assert reply["status"] == "error" and reply["ename"] == "MalformedRequestError"
    assert word in reply["evalue"], reply
    client.until_idle(msg_id)


def test_data_only_for_write(client):
    refused(client, "MalformedRequestError", "buffers", "read", path="x", buffers=[b"x"])


def test_on_shell_it_waits_its_turn_and_on_control_it_does_not(client, folder, gate):
    path = f"{folder}/f"
    cell = client.start(f"print('running', flush=True)\nopen('gate').read()\nopen({path!r}, 'w').write('cell')")
    queued = client.send(NAME, {"op": "read", "path": path})
    client.says(cell, "running")
    refused(client, "FileNotFoundError", "f", "read", path=path)  # on control, while the cell runs
    assert not client.inbox["shell"]
    gate()
    assert client.finish(cell).ok
    assert client.reply(queued).buffers == [b"cell"]
    client.until_idle(queued)


def test_features_are_named(client):
    features = client.request("kernel_info_request").content["supported_features"]
    assert {"cellblock_file_request", "cellblock_run_request", "cellblock_usage_request"} <= set(features)


def test_more_than_a_message_holds(start):
    k = start(args=["--set", "limits.message=1M"])
    c = k.client
    c.run("open('big', 'wb').write(bytes(3 << 20))")
    reply = refused(c, "FileTooLargeError", "limits.message", "read", path="big")
    assert str(3 << 20) in reply.content["evalue"] and reply.buffers == []
    parts = [ask(c, "read", path="big", offset=n << 20, length=1 << 20).buffers[0] for n in range(3)]
    assert b"".join(parts) == bytes(3 << 20)
    assert refused(c, "MalformedRequestError", "limits.message", "write", path="x", buffers=[bytes(2 << 20)])
    c.run("os = __import__('os'); os.mkdir('many')\n[open(f'many/{i:0200}', 'w').close() for i in range(1000)]")
    listed = ask(c, "list", path="many").content
    assert listed["truncated"] is True and 100 < len(listed["entries"]) < 1000


def test_a_new_jail_answers_after_a_death(client, folder):
    ask(client, "write", path=f"{folder}/f", buffers=[b"stays"])
    cell = client.start("os._exit(1)")
    assert client.finish(cell).content["ename"] == "KernelDiedError"
    assert ask(client, "read", path=f"{folder}/f").buffers == [b"stays"]


def test_no_jail_is_said(start):
    k = start(args=["--set", "workspace.path=/none/such"], ready=False)
    with rawclient.Client(k) as c:
        c.wait("iopub", lambda m: m.type == "iopub_welcome")
        for channel in ("control", "shell"):
            reply = c.request(NAME, {"op": "list"}, channel=channel)
            assert reply.content["ename"] == "IsolationError" and "/none/such" in reply.content["evalue"]


def test_many_at_once(client, folder):
    ids = [
        client.send(NAME, {"op": "write", "path": f"{folder}/{i}"}, channel="control", buffers=[b"%d" % i] * 2)
        for i in range(100)
    ]
    for i in ids:
        assert client.reply(i, "control").content == {"status": "ok", "size": len(str(ids.index(i))) * 2}
        client.until_idle(i)
    assert len(ask(client, "list", path=folder).content["entries"]) == 100


# ---- what a hostile guest prepares ----

HOSTILE = {
    "pipe": ("os.mkfifo(P)", "PermissionError", "named pipe"),
    "pipe with a writer": ("os.mkfifo(P); fd = os.open(P, os.O_RDWR)", "PermissionError", "named pipe"),
    "socket": ("import socket; s = socket.socket(socket.AF_UNIX); s.bind(P)", "PermissionError", "socket"),
    "link to a pipe": ("os.mkfifo(P + '2'); os.symlink(os.path.abspath(P + '2'), P)", "PermissionError", "named pipe"),
    "link to itself": ("os.symlink(os.path.basename(P), P)", "OSError", "symbolic links"),
    "link to nothing": ("os.symlink('nothing', P)", "FileNotFoundError", "No such file"),
    "no rights": ("open(P, 'w').close(); os.chmod(P, 0)", "PermissionError", "denied"),
    "folder": ("os.mkdir(P)", "IsADirectoryError", "folder"),
    "8 EiB": (
        "f = open(P, 'wb')\nfor n in (2**63 - 1, 2**43):\n    try: f.truncate(n); break\n    except OSError: pass\n"
        "assert os.stat(P).st_size",
        "FileTooLargeError",
        "limits.message",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries(client, folder, name):
    code, ename, word = HOSTILE[name]
    path = f"{folder}/{name.replace(' ', '-')}"
    cell = client.run(f"P = {path!r}\n{code}")
    assert cell.ok, cell.error
    refused(client, ename, word, "read", path=path)
    if ename == "PermissionError":
        refused(client, ename, word, "write", path=path, buffers=[b"x"])
    assert client.run("6*7").result == "42"


@pytest.mark.parametrize("target", ["/dev/zero", "/etc/passwd", "../" * 30 + "etc/passwd"])
def test_links_out_of_the_workspace(client, folder, target):
    """Made outside: cells may not."""
    path = f"{folder}/{len(target)}"
    link = os.path.join(client.run("os.getcwd()").result[1:-1], path)
    os.symlink(target, link)
    refused(client, "PermissionError", "not in the workspace", "read", path=path)
    refused(client, "PermissionError", "not in the workspace", "write", path=path, buffers=[b"x"])
    os.remove(link)  # beside it no cell may link to a folder that holds it


def test_dots(client, folder):
    ask(client, "write", path=f"{folder}/../{folder}/f", buffers=[b"in"])
    assert ask(client, "read", path=f"./{folder}//./f").buffers == [b"in"]
    workspace = client.run("os.getcwd()").result[1:-1]
    assert ask(client, "read", path=f"{workspace}/{folder}/f").buffers == [b"in"]
    for path in ("..", "../x", f"{folder}/../../x", "/", "/etc/passwd", workspace + "x", "/proc/1/mem"):
        refused(client, "PermissionError", "not in the workspace", "read", path=path)
    client.run(f"os.symlink('..', '{folder}/up')")
    assert ask(client, "read", path=f"{folder}/up/{folder}/f").buffers == [b"in"]
    refused(client, "PermissionError", "not in the workspace", "read", path=f"{folder}/up/../x")


def test_names_that_are_no_text(client, folder):
    client.run(f"open({folder.encode()!r} + b'/\\xff\\xfe', 'w').close(); open('{folder}/a\\n\\x1b[31m', 'w').close()")
    names = {e["name"] for e in ask(client, "list", path=folder).content["entries"]}
    assert names == {"\ufffd\ufffd", "a\n\x1b[31m"}
    assert ask(client, "clean", path=folder).content["deleted"] == 2


def test_a_link_that_changes_meanwhile(start):
    """A name that is now a link out, now a file: never what is outside, never more than an error."""
    client, folder = start(args=["--set", "workspace.mode=overlay"]).client, "race"
    client.run(
        f"import os, threading, time\nos.mkdir('{folder}')\nP = '{folder}/race'\nstop = False\n"
        "def race():\n    i = 0\n"
        "    while not stop:\n        i += 1\n        if i % 2: os.symlink('/etc/passwd', P + '.n')\n"
        "        else: open(P + '.n', 'w').write('inside')\n        os.rename(P + '.n', P)\n"
        "threading.Thread(target=race, daemon=True).start()"
    )
    seen, asked, end = set(), 0, rawclient.deadline_in(None)
    while asked < 150 or not ("ok" in seen and "PermissionError" in seen or time.monotonic() > end):
        asked += 1
        reply = ask(client, "read", path=f"{folder}/race")
        seen.add(reply.content.get("ename", "ok"))
        assert all(b in (b"inside", b"") for b in reply.buffers), reply.buffers
    client.run("stop = True")
    assert {"ok", "PermissionError"} <= seen <= {"ok", "PermissionError", "OSError", "FileNotFoundError"}


def test_a_deep_and_broken_tree_is_cleaned(client, folder):
    cell = client.run(
        f"os.chdir({folder!r})\nfor i in range(600):\n    os.mkdir('d'); open('f', 'w').close(); os.chdir('d')\n"
        f"os.chdir({client.run('os.getcwd()').result})",
        timeout=240,  # each call's way is looked at whole
    )
    assert cell.ok
    reply = ask(client, "clean", patience=240, path=folder).content
    assert (reply["deleted"], reply["left"]) == (1200, 0)


DEEP = "/".join(["d"] * 40)


@pytest.mark.parametrize("mode", ["rw", "overlay"])
@pytest.mark.parametrize("op", ["delete", "clean"])
def test_a_deep_tree_that_was_there_before(start, tmp_path, op, mode):
    """An overlay moves no such folder, and nothing moves one whose links would then lead out."""
    deep = tmp_path / "work/top" / DEEP
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent, deep.parents[20]):
        for name in ("e", "wide0", "wide1"):
            (folder / name / "in").mkdir(parents=True)
            (folder / name / "in/link").symlink_to("../" * 12 + "x")
            (folder / name / "in/f").write_text("f")
    c = start(args=["--set", f"workspace.mode={mode}"], workspace=tmp_path / "work").client
    there = c.run("import os; sum(len(d) + len(f) for _, d, f in os.walk('top'))").result
    reply = ask(c, op, path="top", **({"recursive": True} if op == "delete" else {})).content
    assert reply["status"] == "ok" and reply["deleted"] == int(there) + (op == "delete"), reply
    assert c.run("os.listdir('top') if os.path.exists('top') else []").result == "[]"


def test_what_can_not_be_deleted_deep_is_counted(start, tmp_path):
    deep = tmp_path / "work/top" / DEEP
    for name in ("a/.vscode/x", "b/.vscode/y", "c/d/e/f"):
        (deep / name).mkdir(parents=True)
    c = start(workspace=tmp_path / "work").client
    reply = ask(c, "clean", path="top").content
    assert (reply["deleted"], reply["left"]) == (4, 2) and ".vscode" in reply["first_left"] + ".vscode", reply
    assert reply["protected"] == 2, reply
    assert sorted(os.listdir(deep)) == ["a", "b"]
    refused(c, "OSError", "2 entries in top could not be deleted", "delete", path="top", recursive=True)


def test_what_cells_append_meanwhile_stays(client, folder):
    path, chunk, parts = f"{folder}/log", b"w" * (1 << 20), 16
    cell = client.run(
        f"import threading\nstop, n = False, 0\nf = open({path!r}, 'ab', buffering=0)\n"
        "def add():\n    global n\n    while not stop: n += f.write(b'c')\n"
        "adding = threading.Thread(target=add, daemon=True); adding.start()"
    )
    assert cell.ok, cell
    for _ in range(4):
        reply = ask(client, "write", buffers=[chunk] * parts, path=path, append=True).content
        assert reply["status"] == "ok" and reply["size"] >= parts * len(chunk), reply
    code = f"stop = True; adding.join(); data = open({path!r}, 'rb').read(); (data.count(b'w'), data.count(b'c') == n)"
    assert client.run(code).result == f"({4 * parts * len(chunk)}, True)"


def test_a_killed_helper_is_a_clear_error(start):
    """The guest may kill what serves the supervisor: it has the same uid. The answer says so; nothing hangs."""
    client, folder = start().client, "."
    client.run(
        "import threading, os\nstop = False\ndef hunt():\n    while not stop:\n"
        "        mine = {int(t) for t in os.listdir('/proc/self/task')}\n"
        "        for p in set(range(2, 300)) - mine:\n            try: os.kill(p, 9)\n"
        "            except OSError: pass\nhunter = threading.Thread(target=hunt, daemon=True); hunter.start()"
    )
    answers = []
    while answers.count("JobLostError") < 3 and len(answers) < 200:
        reply = ask(client, "write", path=f"{folder}/f", buffers=[bytes(1 << 20)]).content
        answers.append(reply.get("ename", "ok"))
    client.run("stop = True; hunter.join()")
    assert set(answers) <= {"ok", "JobLostError"} and "JobLostError" in answers
    assert client.run("'hunt' in globals()").result == "True"
    assert ask(client, "write", path=f"{folder}/last").content["status"] == "ok"


def test_protected_entries_stay(start, tmp_path):
    hooks = tmp_path / "work" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh")
    (tmp_path / "work" / ".git" / "index").write_text("x")
    c = start(workspace=tmp_path / "work").client
    refused(c, "OSError", "Read-only", "write", path=".git/hooks/pre-commit", buffers=[b"evil"])
    refused(c, "OSError", "Read-only", "write", path=".git/hooks/post-commit", buffers=[b"evil"])
    reply = ask(c, "clean", path=".").content
    assert reply["left"] >= 1 and "pre-commit" in reply["first_left"], reply
    assert os.listdir(hooks) == ["pre-commit"] and not (hooks.parent / "index").exists()
    refused(c, "OSError", "could not be deleted", "delete", path=".git", recursive=True)


def test_while_the_guest_floods(client, folder):
    cell = client.start("while True: print('x' * 1000)")
    client.wait_in_place("iopub", lambda m: m.type == "stream")
    for i in range(10):
        msg_id = client.send(NAME, {"op": "write", "path": f"{folder}/{i}"}, channel="control", buffers=[b"x" * 1000])
        assert client.reply(msg_id, "control").content == {"status": "ok", "size": 1000}
    client.request("interrupt_request", channel="control")
    assert client.reply(cell).content["ename"] == "KeyboardInterrupt"


def test_no_process_left_is_said(start):
    c = start(args=["--set", "limits.pids=20"]).client
    c.run(
        "import threading, time\nstop = threading.Event()\nthreads = []\ntry:\n    while True:\n"
        "        t = threading.Thread(target=stop.wait, daemon=True); t.start(); threads.append(t)\n"
        "except RuntimeError: pass"
    )
    refused(c, "OSError", "limits.pids", "list")
    c.run("stop.set(); [t.join() for t in threads]")
    assert ask(c, "list").content["status"] == "ok"


def test_changes_are_in_the_audit_log(start, tmp_path):
    log = tmp_path / "audit.jsonl"
    k = start(args=["--set", f"audit.file={log}"])
    ask(k.client, "write", path="f", buffers=[b"x"])
    ask(k.client, "read", path="f")
    k.client.request("cellblock_run_request", {"argv": ["echo", "secret"]}, channel="control")
    k.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    files = [line for line in lines if line["event"] == "file"]
    assert [(f["op"], f["path"]) for f in files] == [("write", "f")]
    commands = [line for line in lines if line["event"] == "command"]
    assert [(c["program"], c["bytes"]) for c in commands] == [("echo", 12)] and "secret" not in log.read_text()


def test_an_overlay_shows_what_cells_see(start):
    k = start(args=["--set", "workspace.mode=overlay"])
    cell = k.client.run("open('by_cell', 'w').write('cell')")
    if not cell.ok and cell.content["ename"] == "IsolationError":
        pytest.skip(f"no overlay on this host: {cell.content['evalue']}")
    assert ask(k.client, "read", path="by_cell").buffers == [b"cell"]
    ask(k.client, "write", path="by_client", buffers=[b"client"])
    assert k.client.run("open('by_client').read()").result == "'client'"
    assert k.client.request("cellblock_run_request", {"argv": ["ls"]}).content["stdout"] == "by_cell\nby_client\n"
    assert os.listdir(k.workspace) == []
    refused(k.client, "MalformedRequestError", "discard", "clean")
