"""A guest for cells of bash: one bash that lives from cell to cell, over the same wire as the Python guest.

bash reads what it has to do from a pipe of ours and answers on another, in records that end in NUL: `B`, the cell
begins; `S` status and number, it is done (what counts is the last that it was told to say: before that it may wait
for a command that an interrupt has just missed); `I` prompt, `read` wants input; `Q` text, the answer to a question.
Its output goes to fds 1 and 2, which the supervisor reads. It leads a process group of its own: an interrupt is passed
on to it only while it runs what is to be interrupted, for one that meets bash while it reads makes it forget a part of
that; and what it then may have forgotten is told again.
"""

import fcntl
import os
import re
import select
import shlex
import signal
import subprocess
import sys

from . import context, wire_constants as W
from .interrupts import Interrupts
from .jsontext import encode, loads
from .prompt import Prompt, StdinNotImplementedError
from .refusals import Refusals
from .wire import Wire, take_message_max

_PATIENCE, _PATIENCE_MAX = 50, 1000  # ms
_OUT, _ANSWERS, _STDERR, _NULL = 200, 201, 202, 203  # fds of bash's: where users' scripts have none
_ENVIRONMENT = {"PS1": "", "PS2": "", "TERM": "xterm-256color", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
# `read` from the cell's own input, which is empty, asks the user; anything else is the builtin's.
_SET_UP = r"""
exec 2>&%(err)d %(err)d>&-
set +o history +H
unset HISTFILE PS1 PS2
shopt -s expand_aliases
__cellblock_begin() {
    builtin local __cellblock_status="$?"
    builtin printf 'B\0' >&%(out)d
    return "$__cellblock_status"
}
__cellblock_done() {
    builtin local __cellblock_status="$?"
    builtin printf 'S%%s %%s\0' "$__cellblock_status" "$1" >&%(out)d
    return "$__cellblock_status"
}
read() {
    builtin local OPTIND=1 OPTARG __cellblock_option __cellblock_prompt= __cellblock_hidden=0
    if [[ ! /dev/stdin -ef /dev/null ]]; then builtin read "$@"; return; fi
    while builtin getopts :ersa:d:i:n:N:p:t:u: __cellblock_option; do
        case $__cellblock_option in
        p) __cellblock_prompt=$OPTARG ;;
        s) __cellblock_hidden=1 ;;
        u) builtin read "$@"; return ;;
        esac
    done
    builtin printf 'I%%s\0' "$__cellblock_hidden$__cellblock_prompt" >&%(out)d
    IFS= builtin read -r -d '' __cellblock_option <&%(answers)d
    [[ $__cellblock_option == A* ]] && builtin read "$@" <<<"${__cellblock_option:1}"
}
""" % {"out": _OUT, "answers": _ANSWERS, "err": _STDERR}
_WORD = re.compile(r"(?:\\.|[^\s;|&()<>`\"'=:\\])*$")
_COMMAND_BEFORE = re.compile(r"(?:^|[;|&({\n`!]|\b(?:then|do|else|elif|if|while|until|time|exec|sudo|command|env))\s*$")
_INCOMPLETE = ("unexpected end of file", "unexpected EOF while looking for", "delimited by end-of-file")


_OF_INTERRUPT = re.compile(r"^Sig(?:Blk|Ign|Cgt):\t[0-9a-f]*[2367abef]$", re.M)  # masks that have signal 2


def _youngest():
    """The last number that was given to a process."""
    with open("/proc/loadavg") as f:
        return int(f.read().split()[-1])


def _dies_of_interrupt(pid, group):
    try:
        with open("/proc/%s/stat" % pid) as f:
            state, _parent, of = f.read().rpartition(")")[2].split()[:3]
        with open("/proc/%s/status" % pid) as f:
            return int(of) == group and state != "Z" and not _OF_INTERRUPT.search(f.read())
    except (OSError, ValueError):  # it has ended
        return False


def _untraced(command):
    """One of ours, which `set -x` does not show. Without quotes: what an interrupt makes bash forget of it might leave
    one open. Without a file: after `set -r` bash writes to none."""
    return "{ %s; } 2>&%d" % (command, _NULL)


class Ended(Exception):
    """bash is gone; its status."""


class Session:
    """The bash process and the pipes to it."""

    def __init__(self, interrupts):
        self._interrupts = interrupts
        ours_out, out = os.pipe()
        answers, ours_answers = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        places = (out, _OUT), (answers, _ANSWERS), (2, _STDERR), (null, _NULL)
        inherited = [fcntl.fcntl(fd, fcntl.F_DUPFD, at) for fd, at in places]
        for fd in (out, answers, null):
            os.close(fd)
        if inherited != [at for _, at in places]:
            raise OSError("fds %s are taken" % inherited)
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "--noediting", "-i", "-s"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # until it has said that it has no terminal
            pass_fds=inherited,
            env={**os.environ, **_ENVIRONMENT},
            bufsize=0,
            preexec_fn=_own_group,
        )
        for fd in inherited:
            os.close(fd)
        self.pid = self._process.pid
        self._records, self._answers = ours_out, ours_answers
        self._rest = b""
        self._youngest = 0  # at the last interrupt
        self._poll = select.poll()
        self._poll.register(ours_out, select.POLLIN)
        self._end = os.pidfd_open(self.pid)
        self._poll.register(self._end, select.POLLIN)
        self.tell(_SET_UP)

    def tell(self, text):
        data = text.encode("utf-8", "replace") + b"\n"
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except BrokenPipeError:
            pass  # seen by record()

    def record(self, patience=None):
        """The next record: (kind, text); None if there is none for so many ms. Raises Ended when bash has ended."""
        while b"\0" not in self._rest:
            ready = [fd for fd, _ in self._poll.poll(patience)]
            if not ready and patience is not None:
                return None
            data = os.read(self._records, 1 << 16) if self._records in ready else b""
            if ready and not data:
                raise Ended(self._process.wait())
            self._rest += data
        record, _, self._rest = self._rest.partition(b"\0")
        text = record.decode("utf-8", "replace")
        return text[:1], text[1:]

    def ask(self, command):
        """What a command of ours prints."""
        end = _untraced("builtin printf \\\\0 >&%d" % _OUT)
        self.tell("{ builtin printf Q; %s; } >&%d 2>&%d </dev/null\n%s" % (command, _OUT, _NULL, end))
        while True:
            try:
                kind, text = self.listen(lambda: self.interrupt(end))
                if kind == "Q":
                    return text
            except KeyboardInterrupt:
                self.interrupt(end)

    def listen(self, interrupt, patience=None):
        """As record(). Calls interrupt(), which gives True, for each interrupt meanwhile; one that came before is
        raised."""
        interrupts = self._interrupts
        interrupts.on_async = interrupt
        try:
            return interrupts.run(self.record, patience)
        finally:
            interrupts.on_async = None

    def interrupt(self, end):
        """Only what bash runs now; then it does `end`, perhaps for the second time. The empty line is for a byte that
        it may have been about to read."""
        try:
            os.killpg(self.pid, signal.SIGINT)
            self._youngest = _youngest()
        except OSError:
            pass
        self.tell("\n" + end)
        return True

    def interrupt_missed(self):
        """A command that bash had just begun may have missed an interrupt, between its fork and its exec; bash waits
        for it, for it might have dealt with that. Who is there still, from before, and would die of one, has."""
        for name in os.listdir("/proc"):
            if name.isdigit() and self.pid != int(name) <= self._youngest and _dies_of_interrupt(name, self.pid):
                try:
                    os.kill(int(name), signal.SIGINT)
                except OSError:  # it has ended
                    pass

    def answer(self, text):
        os.write(self._answers, text.replace("\0", "").encode("utf-8", "replace") + b"\0")

    def close(self):
        try:
            self._process.kill()
        except OSError:
            pass
        self._process.wait()
        self._process.stdin.close()
        for fd in (self._records, self._answers, self._end):
            os.close(fd)


def _own_group():
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class BashGuest:
    def __init__(self):
        self.wire = Wire()
        self.interrupts = Interrupts(self.wire)
        self.prompt = Prompt(self.wire, self.interrupts, self)
        self.prompt.message_max = take_message_max()
        self.refusals = Refusals()
        self.session = None
        self._ends = 0  # that bash was told to say
        self._begun = self._interrupted = False
        self._handlers = {
            W.EXECUTE: (self._execute, W.EXECUTE_REPLY),
            W.COMPLETE: (self._complete, W.COMPLETE_REPLY),
            W.INSPECT: (self._inspect, W.INSPECT_REPLY),
            W.IS_COMPLETE: (self._is_complete, W.IS_COMPLETE_REPLY),
            W.DOWN_COMM_OPEN: (self._comm_open, W.COMM_DONE),
            W.DOWN_COMM_MSG: (self._comm, W.COMM_DONE),
            W.DOWN_COMM_CLOSE: (self._comm, W.COMM_DONE),
        }

    def flush(self):
        """Nothing is held here: bash writes to the pipes itself."""

    flush_replaced = flush

    def serve(self):
        os.set_inheritable(W.FD_LOG, False)
        self.interrupts.install()
        self.session = Session(self.interrupts)
        version = self.session.ask("builtin printf %s.%s.%s ${BASH_VERSINFO[@]::3}")
        hello = {
            "wire_version": W.VERSION,
            "implementation": "bash",
            "implementation_version": version,
            "python_version": "%d.%d.%d" % sys.version_info[:3],
            "missing_paths": [],
        }
        self.wire.send(W.HELLO, 0, encode(hello))
        while True:
            kind, request, content, metadata, _ = self.wire.recv()
            if kind == W.SHUTDOWN:
                self.session.close()
                sys.exit(0)
            if kind not in self._handlers:
                continue  # a late INPUT_REPLY
            handler, answer = self._handlers[kind]
            self.interrupts.begin(request)
            context.begin(request)
            try:
                if self.session is None:
                    self.session = Session(self.interrupts)
                reply = handler(request, loads(content), loads(metadata) if metadata else {})
            except BaseException as e:
                os.write(W.FD_LOG, ("%r\n" % e).encode("utf-8", "replace"))
                reply = _error(type(e).__name__, str(e))
            finally:
                self.interrupts.end()
            self.wire.send(answer, request, encode(reply))

    def _execute(self, request, content, metadata):
        if metadata.get("allow_stdin"):
            self.prompt.begin(request)
        try:
            status, interrupted, ended = self._run(content["code"])
        finally:
            self.prompt.end()
        self.refusals.after_cell(sys.stderr)
        expressions = {} if ended else self._expressions(content.get("user_expressions") or {})
        more = {"payload": [], "user_expressions": expressions}
        if ended:  # also by an interrupt: nothing is kept
            failure = _error("ShellEnded", "bash %s; its variables are lost, the next cell gets a new one" % ended)
        elif interrupted:  # whatever its status: one that bash begins just then may end well for what it misses
            failure = _error("KeyboardInterrupt", "")
        elif status:
            failure = _error("NonZeroExit", "status %d" % status)
        else:
            return {"status": "ok", **more}
        self.wire.send(W.ERROR, request, encode({k: failure[k] for k in ("ename", "evalue", "traceback")}))
        return {**failure, **more}

    def _run(self, code):
        """(exit status, whether it was interrupted, how bash ended or "")."""
        self._begun = self._interrupted = over = False
        cell, patience = shlex.quote(code.replace("\0", "")), _PATIENCE_MAX
        self.session.tell("%s; eval %s </dev/null\n%s" % (_untraced("__cellblock_begin"), cell, self._done()))
        while True:
            try:
                record = self.session.listen(self._interrupt, patience)
                if record is None:
                    if over:  # and bash waits for a command that it began as it was interrupted
                        self._interrupt()
                    elif self._interrupted:
                        self.session.interrupt_missed()
                    patience = min(2 * patience, _PATIENCE_MAX)
                    continue
                kind, text = record
                if kind == "B":
                    self.interrupts.shielded(self._begins)
                elif kind == "I":
                    self.session.answer(self.interrupts.run(self._ask_user, text[1:], text[:1] == "1"))
                elif kind == "S" and text.endswith(" %d" % self._ends):
                    return int(text.split()[0]), self._interrupted, ""
                elif kind == "S":
                    over, patience = True, patience if over else _PATIENCE
            except KeyboardInterrupt:
                self._interrupt()
            except Ended as e:
                self.session.close()
                self.session = None
                status = e.args[0]
                if status < 0:
                    return status, self._interrupted, "was killed by signal %d" % -status
                return status, self._interrupted, "ended with status %d" % status

    def _done(self):
        self._ends += 1
        return _untraced("__cellblock_done %d" % self._ends)

    def _begins(self):
        self._begun = True
        if self._interrupted:
            self.session.interrupt(self._done())

    def _interrupt(self):
        """bash says when it is done with the cell."""
        self._interrupted = True
        if self._begun:
            self.session.interrupt(self._done())
        return True

    def _ask_user(self, prompt, hidden):
        try:
            return "A" + (self.prompt.getpass if hidden else self.prompt.input)(prompt)
        except (EOFError, ValueError, StdinNotImplementedError):  # or its prompt is over limits.message
            return "E"

    def _expressions(self, expressions):
        """Each is a word that bash expands: `$x`, `$(date)`."""
        values = {}
        for name, expression in expressions.items():
            text = self.session.ask("builtin eval %s" % shlex.quote('builtin printf %%s "%s"' % expression))
            values[name] = {"status": "ok", "data": {"text/plain": text}, "metadata": {}}
        return values

    def _complete(self, request, content, metadata):
        code = content.get("code", "")
        cursor = content.get("cursor_pos")
        cursor = len(code) if cursor is None else max(0, min(int(cursor), len(code)))
        raw = _WORD.search(code[:cursor]).group()
        matches = self._matches(code[: cursor - len(raw)], raw)
        return {
            "status": "ok",
            "matches": matches,
            "cursor_start": cursor - len(raw),
            "cursor_end": cursor,
            "metadata": {},
        }

    def _matches(self, before, raw):
        variable = re.match(r"(\$\{?)(\w*)$", raw)
        if variable:
            names = self._compgen("-v", variable.group(2))
            return [variable.group(1) + name + ("}" if variable.group(1) == "${" else "") for name in names]
        word = re.sub(r"\\(.)", r"\1", raw)
        if _COMMAND_BEFORE.search(before) and "/" not in word:
            return self._compgen("-c", word) if word else []
        folder = "/proc/%d/cwd" % self.session.pid
        matches = []
        for name in self._compgen("-f", word):
            path = os.path.join(folder, os.path.expanduser(name))
            matches.append(re.sub(r"([^\w@%+=:,./~-])", r"\\\1", name) + ("/" if os.path.isdir(path) else ""))
        return matches

    def _compgen(self, what, word):
        text = self.session.ask("builtin compgen %s -- %s" % (what, shlex.quote(word)))
        return sorted({name for name in text.split("\n") if name and not name.startswith("__cellblock_")})[:2000]

    def _inspect(self, request, content, metadata):
        code, cursor = content.get("code", ""), int(content.get("cursor_pos") or 0)
        start = re.search(r"[\w.+-]*$", code[:cursor]).start()
        word = re.match(r"[\w.+-]*", code[start:]).group()
        text = ""
        if word and re.search(r"\$\{?$", code[:start]):
            text = self.session.ask("builtin declare -p -- %s" % shlex.quote(word))
        elif word:
            text = self.session.ask("builtin type -a -- %s" % shlex.quote(word))
            if "is a shell builtin" in text or "is a shell keyword" in text:
                text += "\n" + self.session.ask("builtin help -- %s" % shlex.quote(word))
            elif text and content.get("detail_level"):
                text += "\n" + self.session.ask("man -- %s | col -b" % shlex.quote(word))
        data = {"text/plain": text.rstrip()} if text.strip() else {}
        return {"status": "ok", "found": bool(data), "data": data, "metadata": {}}

    def _is_complete(self, request, content, metadata):
        code = content.get("code", "")
        if code.endswith("\\") and not code.endswith("\\\\"):
            return {"status": "incomplete", "indent": ""}
        checked = subprocess.run(
            ["bash", "--norc", "-n", "-c", code.replace("\0", "")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        said = checked.stderr.decode("utf-8", "replace")
        if any(words in said for words in _INCOMPLETE):
            return {"status": "incomplete", "indent": ""}
        return {"status": "invalid" if checked.returncode else "complete"}

    def _comm_open(self, request, content, metadata):
        """Nobody here knows a target."""
        closed = {"comm_id": content["comm_id"], "data": {}}
        self.wire.send(W.UP_COMM_CLOSE, request, encode(closed))
        return {}

    def _comm(self, request, content, metadata):
        return {}


def _error(ename, evalue):
    text = "%s: %s" % (ename, evalue) if evalue else ename
    return {"status": "error", "ename": ename, "evalue": evalue, "traceback": [text]}


def run():
    BashGuest().serve()
