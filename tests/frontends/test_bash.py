"""Cells of bash: a guest of another language over the same wire. The ecosystem's conformance suite, and what a person
does in a shell session."""

import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_kernel_test
import kernels
from jupyter_kernel_test import KernelTests
from rawclient import DEADLINE

NAME = "cellblock-bash"
pytestmark = [pytest.mark.cellblock_only, pytest.mark.once]
jupyter_kernel_test.TIMEOUT = DEADLINE


@pytest.fixture(scope="module", autouse=True)
def kernelspec(tmp_path_factory):
    """As a user installs it, in a place of its own."""
    folder = tmp_path_factory.mktemp("prefix")
    program = kernels.spec_argv()[0][0]
    argv = [program, "install", "--prefix", str(folder), "--language", "bash", "--python", sys.executable]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert f"Installed kernelspec {NAME} in {folder}" in said and "Bash 5" in said
    patch = pytest.MonkeyPatch()
    patch.setenv("JUPYTER_PATH", str(folder / "share/jupyter"))
    yield folder / "share/jupyter/kernels" / NAME
    patch.undo()


def SHARED():
    return {"argv": kernels.spec_argv(NAME)[0]}


@pytest.fixture
def session(client):
    return client


class TestBash(KernelTests):
    kernel_name = NAME
    language_name = "bash"
    file_extension = ".sh"
    code_hello_world = "echo 'hello, world'"
    code_stderr = "echo oops >&2"
    completion_samples = [
        {"text": "ech", "matches": {"echo"}},
        {"text": "echo $HOM", "matches": {"$HOME"}},
        {"text": "ls /usr/bi", "matches": {"/usr/bin/"}},
    ]
    complete_code_samples = ["echo 1", "if true; then echo 1; fi", "f() { echo 1; }"]
    incomplete_code_samples = ["if true", "echo 'a", "cat <<END\na", "echo \\", "f() {"]
    invalid_code_samples = ["fi", "echo )"]
    code_generate_error = "false"
    code_inspect_sample = "cd"
    # bash has values, displays and a pager nowhere; without values the suite does not look at the history either
    test_execute_result = test_display_data = test_clear_output = test_pager = test_history = None

    def execute_helper(self, *args, timeout=DEADLINE, **how):
        return super().execute_helper(*args, timeout=timeout, **how)


del KernelTests


def test_kernelspec(kernelspec):
    assert sorted(p.name for p in kernelspec.iterdir() if p.is_file()) == [
        "interpreter.json",
        "kernel.json",
        "logo-32x32.png",
        "logo-64x64.png",
        "logo-svg.svg",
    ]


def test_about_itself(session):
    info = session.request("kernel_info_request", {}).content
    about = info["language_info"]
    assert (about["name"], about["file_extension"], about["mimetype"]) == ("bash", ".sh", "text/x-sh")
    assert info["banner"].startswith("Cellblock") and "Bash 5" in info["banner"]
    assert about["version"] == session.run("printf %s.%s.%s ${BASH_VERSINFO[@]::3}").text()


def test_state_is_kept(session):
    session.run("x='a b'; cd /tmp; f() { echo \"f: $1\"; }; shopt -s nullglob; alias ll='ls -d'")
    assert session.run('echo "$x $PWD"; f 1; echo /no*such; ll /').text() == "a b /tmp\nf: 1\n\n/\n"
    assert session.run("(exit 3)").error["evalue"] == "status 3"
    assert session.run("echo $?").text() == "3\n"


def test_any_source(session):
    source = "echo \"it's\" '\"quoted\"' `echo old` $(echo new) é \\\n  on\ncat <<'END'\n$HOME'\"\nEND\n"
    assert session.run(source).text() == 'it\'s "quoted" old new é on\n$HOME\'"\n'
    assert session.run("for i in 1 2 3; do\n  echo $i\ndone | tac").text() == "3\n2\n1\n"
    bad = session.run("if")
    assert bad.error["evalue"] == "status 2" and "syntax error" in bad.text("stderr")
    assert session.run("").ok and session.run("# only words").ok


def test_a_cell_may_change_how_words_are_split(session):
    assert session.run("IFS=0123456789").ok and session.run("true").ok
    assert session.run("(exit 22)").error["evalue"] == "status 22"
    assert session.run('echo "$?"; unset IFS').text() == "22\n"


def test_a_trace_shows_the_cells_own_commands(session):
    session.run("exec 9>&2 2>trace; set -x")
    session.request("complete_request", {"code": "ech", "cursor_pos": 3})
    assert session.run("echo one; (exit 3)").error["evalue"] == "status 3"
    text = session.run('echo "$?"; set +x; exec 2>&9 9>&-; cat trace; rm trace').text()
    assert text.startswith("3\n") and "+ echo one\n" in text
    assert "__cellblock" not in text and "builtin" not in text


def test_a_restricted_bash_goes_on(session):
    assert session.run("set -r; echo one").text() == "one\n"
    assert session.run("echo two; (exit 3)").error["evalue"] == "status 3"
    assert "restricted" in session.run("echo three >file").text("stderr")
    assert "compgen" in session.request("complete_request", {"code": "compg", "cursor_pos": 5}).content["matches"]


def test_a_command_reads_nothing_of_ours(session):
    assert session.run("cat; echo end").text() == "end\n"
    assert session.run("wc -c <&0; head -c 10").text() == "0\n"
    assert session.run("env | grep ^CELLBLOCK_MESSAGE").text() == ""


@pytest.mark.parametrize("code", ["while :; do :; done", "sleep 600; echo not reached", "(sleep 600 | cat); :"])
def test_interrupt(session, code):
    session.run("kept=1")
    cell = session.start("echo going; " + code)
    session.says(cell, "going")
    session.request("interrupt_request", {}, channel="control")
    done = session.finish(cell)
    assert done.content["ename"] == "KeyboardInterrupt" and "not reached" not in done.text()
    assert session.run("echo $kept").text() == "1\n"


def test_an_interrupted_cell_that_ends_well_says_that_it_was_interrupted(session):
    """bash forgets an interrupt of a command that ends with 0: `cat`, when it had just begun, misses it, and ends well
    as what it reads from is gone."""
    cell = session.start("(trap 'exit 0' INT; echo going; while :; do :; done); :")
    session.says(cell, "going")
    session.request("interrupt_request", {}, channel="control")
    assert session.finish(cell).content["ename"] == "KeyboardInterrupt"


LATE = """python3 -c '
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN); print("going", flush=True); time.sleep(1.5)
signal.signal(signal.SIGINT, signal.SIG_DFL); time.sleep(600)'; echo not reached"""


def test_a_command_that_has_missed_an_interrupt(session):
    """As one may between its fork and its exec: bash waits for it, and it is interrupted again."""
    cell = session.start(LATE)
    session.says(cell, "going")
    session.request("interrupt_request", {}, channel="control")
    done = session.finish(cell)
    assert done.content["ename"] == "KeyboardInterrupt" and "not reached" not in done.text()


def test_what_begins_after_an_interrupt_is_not_hit(session):
    """A trap may clean up. The loop starts no command: bash itself forgets an interrupt whose command ends well."""
    cell = session.start("(trap 'sleep 3; echo cleaned; exit 7' INT; echo going; while :; do :; done)")
    session.says(cell, "going")
    session.request("interrupt_request", {}, channel="control")
    assert "cleaned" in session.finish(cell).text()


def answer(session, code, *answers):
    cell = session.start(code, allow_stdin=True)
    asked = []
    for value in answers:
        question = session.next("stdin")
        asked.append((question.content["prompt"], question.content["password"]))
        session.send("input_reply", {"value": value}, channel="stdin", parent=question.header)
    return asked, session.finish(cell)


def test_read_asks_the_user(session):
    asked, cell = answer(session, "read -p 'Name? ' first rest; read -s key; echo $rest-$first-$key", "Ada L", "secret")
    assert asked == [("Name? ", False), ("", True)] and cell.text() == "L-Ada-secret\n"
    _, cell = answer(session, "read x || echo at end", "\x04")
    assert cell.text() == "at end\n"
    assert session.run("read x || echo nobody to ask").text() == "nobody to ask\n"
    assert (
        session.run("echo from pipe | while read l; do echo $l; done; read a <<< b; echo $a").text() == "from pipe\nb\n"
    )
    cell = session.start("read x; echo not reached", allow_stdin=True)
    session.next("stdin")
    session.request("interrupt_request", {}, channel="control")
    assert session.finish(cell).content["ename"] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    "code, words",
    [("exit 4", "ended with status 4"), ("kill -9 $$", "killed by signal 9"), ("set -e; false", "status 1")],
)
def test_the_end_of_bash_is_said_and_the_next_cell_has_a_new_one(session, code, words):
    session.run("kept=1")
    cell = session.run(code)
    assert cell.error["ename"] == "ShellEnded" and words in cell.error["evalue"]
    assert cell.about["state"] == "lost"
    assert session.run("echo ${kept-gone} $-").text().startswith("gone ")


def test_an_interrupt_that_ends_bash_is_its_end(session):
    session.run("kept=1")
    cell = session.start("trap 'exit 5' INT; echo going; while :; do :; done")
    session.says(cell, "going")
    session.request("interrupt_request", {}, channel="control")
    done = session.finish(cell)
    assert done.error["ename"] == "ShellEnded" and done.about["state"] == "lost"
    assert session.run("echo ${kept-gone}").text() == "gone\n"


def test_what_is_written_in_an_empty_folder_is_said_to_be_lost(start, nothing_left):
    home = nothing_left / "some-home"
    home.mkdir()
    c = start(workspace=home, env={"HOME": str(home)}, **SHARED()).client
    c.run(":")  # the first cell says so in any case
    for code in ("echo x >out", "echo y >out"):
        assert "what was written is lost" in c.run(code).text("stderr"), code
    assert c.run("cat out").text("stderr") == ""


def test_completion(session):
    session.run("mine_one=1; mine_two=2; my_function() { :; }; mkdir -p 'd d'; touch 'd d/f'")
    for code, matches in {
        "echo $mine_": ["$mine_one", "$mine_two"],
        "echo ${mine_o": ["${mine_one}"],
        "true && my_f": ["my_function"],
        "ls d": ["d\\ d/"],
        "ls d\\ d/": ["d\\ d/f"],
        "cat <": None,
    }.items():
        content = session.request("complete_request", {"code": code, "cursor_pos": len(code)}).content
        assert content["status"] == "ok" and (matches is None or content["matches"] == matches), code


def test_inspection(session):
    session.run("v=(1 2); g() { echo body; }")

    def inspect(code, level=0):
        content = {"code": code, "cursor_pos": len(code), "detail_level": level}
        return session.request("inspect_request", content).content

    assert "echo body" in inspect("g")["data"]["text/plain"]
    assert 'declare -a v=([0]="1" [1]="2")' in inspect("echo $v")["data"]["text/plain"]
    assert "Change the shell" in inspect("cd")["data"]["text/plain"]
    assert inspect("no_such_thing") | {"data": 0} == {"status": "ok", "found": False, "data": 0, "metadata": {}}


def test_user_expressions_and_jobs(session):
    cell = session.run("x=7; sleep 600 &", user_expressions={"x": "$x", "sum": "$((x + 1))"})
    values = {k: v["data"]["text/plain"] for k, v in cell.content["user_expressions"].items()}
    assert values == {"x": "7", "sum": "8"}
    assert session.run("kill %1; wait; echo done").text() == "done\n"


def test_the_walls_are_the_same(session):
    cell = session.run("cat /etc/shadow; echo > /etc/planted; id -u; echo $$")
    assert "No such file" in cell.text("stderr") and "Read-only" in cell.text("stderr")
    assert not Path("/etc/planted").exists()


def test_uninstalled_by_its_name(tmp_path):
    program = kernels.spec_argv()[0][0]
    kernelspecs = tmp_path / "share/jupyter/kernels"
    for more in ([], ["--language", "bash"]):
        argv = [program, "install", "--prefix", str(tmp_path), "--python", "/usr/bin/python3", *more]
        subprocess.run(argv, check=True, capture_output=True)
    assert {p.name for p in kernelspecs.iterdir()} == {"cellblock", NAME}
    subprocess.run([program, "uninstall", "--prefix", str(tmp_path), "--name", NAME], check=True, capture_output=True)
    assert [p.name for p in kernelspecs.iterdir()] == ["cellblock"]
    assert NAME in subprocess.run([program, "help", "uninstall"], capture_output=True, text=True).stdout


def test_a_language_that_is_not_there():
    program = kernels.spec_argv()[0][0]
    done = subprocess.run([program, "install", "--language", "bush"], capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean 'bash'" in done.stderr
