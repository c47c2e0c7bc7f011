"""The guest's main loop: one frame down, what it asks, its answer up.

Order of start: wire and log, streams, interrupts, shell, HELLO. Everything that a first cell does not need is imported
when it is needed (completion, comms, asyncio, tracebacks). A warm start (zygote.py) does prepare() in one process, and
take_policy() and begin() in each copy of it.
"""

import atexit
import faulthandler
import gc
import os
import sys
from importlib.machinery import PathFinder

from . import context, environment, wire_constants as W
from .aio import Aio
from .beside import Beside
from .imports import Finder
from .interrupts import Interrupts
from .jsontext import bundle, encode, loads, quote, utf8
from .prompt import Prompt
from .refusals import Refusals
from .side import NOTHING, Side
from .streams import Output, OutStream
from .tracebacks import brief_traceback, cell_folder, error_content, safe_str
from .transactions import Transactions
from .twins import Twins
from .wire import Wire, take_message_max


_DISPLAYS = {
    "display_data": W.DISPLAY_DATA,
    "update_display_data": W.UPDATE_DISPLAY_DATA,
    "clear_output": W.CLEAR_OUTPUT,
}


_AROUND = 300  # bytes of a message around its data and a value, at most
_TEXT_RESULT = b'{"data":{"text/plain":%s},"metadata":{}}'


class Guest:
    def __init__(self):
        self.wire = Wire()
        self.twins = Twins(self)
        self.side = Side(self)
        self.interrupts = Interrupts(self.wire)
        self.output = Output(self.wire)
        self.aio = Aio(self.wire, self.interrupts)
        self.prompt = Prompt(self.wire, self.interrupts, self.output)
        self.aio.beside = Beside(self)
        self.finder = Finder()
        self.stderr = None  # prepare()
        self.refusals = None  # and these three: take_policy()
        self.message_max = self._reserve_size = 0
        self.transactions = Transactions(self)
        self.shell = None
        self.debugger = None  # dap.Debugger, once it was started
        self.metadata = {}  # the running EXECUTE's
        self.tools = None  # hosttools.HostTools, once a client has registered some
        self.headers = {}  # request -> the header of the client's message, of cells
        self.comm_headers = {}  # the same of comm messages, of which there may be many while a cell runs
        self.cells = {}  # request -> (code, cell's id), of those that run
        self.exit_code = None
        self._comms = None
        self._kernel = None
        self.libc = None
        self._modules_seen = 0
        self._reserve = None
        self._handlers = {
            W.EXECUTE: self.execute,
            W.COMPLETE: self.ask,
            W.INSPECT: self.ask,
            W.IS_COMPLETE: self.ask,
            W.DOWN_COMM_OPEN: self.comm,
            W.DOWN_COMM_MSG: self.comm,
            W.DOWN_COMM_CLOSE: self.comm,
            W.SHUTDOWN: self.shutdown,
            W.CHECKPOINT: self.twins.checkpoint,
            W.RESUME: self.twins.resume,
        }

    # set-up

    def take_policy(self):
        """What the jail and its policy say, in variables and limits: nothing of it is known to a zygote."""
        self.refusals = Refusals()
        self.message_max = self.prompt.message_max = take_message_max()
        self.output.frame = min(self.output.frame, self.message_max)
        self._reserve, self._reserve_size = None, reserve_size()
        environment.packages_refused = environment.prepare_packages()

    def prepare(self, bundle=None):
        """The first half of a start: nothing that differs between guests of one interpreter and environment. No file in
        the home, /tmp or the working folder counts, but IPython's configuration (renew_shell)."""
        os.set_inheritable(W.FD_LOG, False)
        faulthandler.enable(W.FD_LOG)
        sys.stdout, sys.stderr = OutStream(self.output, W.STDOUT, "stdout"), OutStream(self.output, W.STDERR, "stderr")
        self.stderr = sys.stderr
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        os.register_at_fork(
            before=self._before_fork,
            after_in_child=self._after_fork_in_child,
            after_in_parent=self._after_fork_in_parent,
        )
        self.twins.forks.install()
        atexit.register(self.output.flush)
        context.patch_threads()
        context.patch_os(self.output.flush)
        self.finder.install()
        self.shell = self._make_shell()
        self.finder.after("asyncio", self.aio.on_import)
        self.finder.after("concurrent.futures.thread", context.patch_executor)
        self.finder.after("multiprocessing.pool", context.patch_pool)
        self.finder.after("multiprocessing.util", lambda module: context.patch_spawn(module, self.output.flush))
        self.finder.after("subprocess", lambda module: context.patch_subprocess(module, self.output.flush))
        self.finder.after("socket", context.patch_socket)
        self.finder.after("getpass", self.prompt.on_getpass)
        self.finder.after("comm", self._on_comm_package)
        self.finder.after("matplotlib", environment.give_fonts)
        self.finder.after("jedi.settings", environment.give_trees)
        self.finder.shim(self._find_shim)
        self.prompt.install()
        self.interrupts.install()
        if bundle is not None:
            bundle.close()

    def begin(self):
        """The second half, after which it serves."""
        if self.refusals.says.get("imports.allow"):
            from .allowed_imports import AllowedImports

            AllowedImports(self.refusals.says["imports.allow"]).install()
        cell_folder()
        sys.path.insert(0, "")
        gc.freeze()
        gc.enable()
        self.side.start()
        self.hello()
        self.interrupts.run(self.aio.run_plain, self.shell.after_hello)

    def _make_shell(self):
        found = PathFinder.find_spec("IPython") is not None
        environment.prepare(found)
        if found:
            try:
                from .shell import make_shell

                return make_shell(self)
            except Exception:
                self.log_exception("IPython did not start, plain mode is used")
        from .plain import PlainShell

        return PlainShell(self)

    def renew_shell(self):
        """In a copy of a zygote: the shell stands in this working folder, and where the home has a configuration there
        is another one, made with it."""
        if not self.shell.renew():
            self.shell = self._make_shell()

    def hello(self):
        self.wire.send(
            W.HELLO,
            0,
            encode(
                {
                    "wire_version": W.VERSION,
                    "implementation": self.shell.implementation,
                    "implementation_version": self.shell.implementation_version,
                    "python_version": "%d.%d.%d" % sys.version_info[:3],
                    "missing_paths": environment.missing_paths(),
                    "side": self.side.wire is not None,
                }
            ),
        )

    def log(self, text):
        try:
            os.write(W.FD_LOG, (" ".join(text.split("\n")) + "\n").encode("utf-8", "replace"))
        except OSError:
            pass

    def log_exception(self, what):
        import traceback

        lines = traceback.format_exc().strip().split("\n")
        self.log("%s: %s" % (what, " | ".join(line.strip() for line in lines[-6:])))

    def _before_fork(self):
        if self.twins.forking:
            self.twins.hold()
        else:
            self.output.flush()

    def _after_fork_in_parent(self):
        if self.twins.forking:
            self.twins.held()

    def _after_fork_in_child(self):
        if not self.twins.forking:
            self.wire.after_fork_in_child()
            self.side.after_fork_in_child()
            self.output.after_fork_in_child()
            self.twins.forget_in_child()
            self.interrupts.pid = os.getpid()

    # the loop

    def serve(self):
        wire, aio, warm = self.wire, self.aio, getattr(self.shell, "warm", None)
        while self.exit_code is None:
            # nothing of the user's runs in a woken copy before its files are back and it may speak
            if not self.twins.woken and not wire.pending() and not wire.aside:
                if aio.loop is not None:
                    aio.wait_readable()
                elif warm and not warm.done:
                    warm.while_quiet()
            try:
                kind, request, content, metadata, buffers = wire.aside.pop(0) if wire.aside else wire.recv()
            except MemoryError:  # a cell has taken all, and caught what told it so
                if not self._reserve or wire.is_torn():
                    raise
                self.free_reserve()
                continue
            handler = self._handlers.get(kind)
            if handler is None:
                if kind != W.INPUT_REPLY:  # a late reply to an interrupted input() is nothing
                    self.log("frame of unknown type %d" % kind)
                continue
            self.interrupts.begin(request)
            aio.context.run(context.begin, request)
            context.begin(request)
            try:
                handler(kind, request, content, metadata, buffers)
            except KeyboardInterrupt:
                self.log("interrupt outside of user code")
            finally:
                self.interrupts.end()

    def _take_reserve(self):
        """Address space that nothing touches, so that after a MemoryError there is some to say so and to free more. Not
        taken when memory is still short: the next cell needs what is left."""
        try:
            bytes(4 * self._reserve_size)
            self._reserve = bytes(self._reserve_size)
        except MemoryError:
            pass

    def free_reserve(self):
        self._reserve = None

    def _leave_if_forked(self, reply):
        """A child that os.fork made in a cell and that ran to the cell's end must not serve. Its status is Python's."""
        if self.wire.forked:
            self.output.flush()
            os._exit(_exit_status(loads(reply)))

    def reply(self, kind, request, content, metadata=b""):
        self._leave_if_forked(content)
        self.output.flush()
        self.wire.send(kind, request, content, metadata)

    def execute(self, kind, request, content, metadata, buffers):
        content, self.metadata = loads(content), loads(metadata) if metadata else {}
        if self._reserve is None:
            self._take_reserve()
        self.transactions.begin(self.metadata)
        if self.metadata.get("allow_stdin"):
            self.prompt.begin(request)
        if self.metadata.get("memory") or self.refusals.lowered:
            self.refusals.lower_memory(self.metadata.get("memory"))
        if self.debugger:
            self.debugger.cell_begins()
        self.aio.executing = True
        reply = self._run_cell(self.shell, request, content, self.metadata)
        self.aio.executing = False
        self.refusals.restore_memory()
        self._leave_if_forked(reply)
        if self.prompt.request:
            self.prompt.end()
        self.flush_c_stdio()
        self.refusals.after_cell(self.stderr)
        asked = self.transactions.asked()
        self.reply(W.EXECUTE_REPLY, request, self._within_limit(reply), encode(asked) if asked else b"")

    def _within_limit(self, reply):
        if len(reply) <= self.message_max:
            return reply
        less = {"status": "ok", "payload": [], "user_expressions": {}}
        less.update(ename="ValueError", evalue="reply too large", traceback=[])
        if not reply.startswith(b'{"status":"ok"'):
            less["status"] = "error"
            try:
                less.update(self._too_large(loads(reply), len(reply)))
            except MemoryError:
                pass
        return encode(less)

    def _run_cell(self, shell, request, content, metadata, lane=None):
        """Its reply."""
        self.cells[request] = content.get("code"), metadata.get("cell_id")
        self._remember_header(self.headers, request, metadata.get("header"))
        try:
            reply = self._in_cell(shell, request, content, metadata, lane)
        except BaseException as e:  # a bug of ours or an interrupt between user code and reply
            if not isinstance(e, KeyboardInterrupt):
                self.log_exception("execute")
            reply = self.failed(e, shell.guest.send_error)
        self.cells.pop(request, None)
        return reply

    def _in_cell(self, shell, request, content, metadata, lane):
        """Runs a cell with what its client gives it."""
        self.wire.said = 0
        tools, env = metadata.get("tools"), metadata.get("env")
        if not tools and not env:
            return shell.execute(content, metadata)
        if env:
            from .extras import Environment

            with Environment(env):
                return self._in_cell(shell, request, content, dict(metadata, env=None), lane)
        if self.tools is None:
            from .hosttools import HostTools

            self.tools = HostTools(self)
        try:
            self.tools.begin(request, metadata, lane)
            return shell.execute(content, metadata)
        finally:
            self.tools.end(request)

    def run_in_subshell(self, lane, request, content, metadata):
        """The reply to a cell of a subshell, in its thread."""
        reply = self._run_cell(lane.shell, request, content, metadata, lane)
        self.flush_c_stdio()
        self.refusals.after_cell(self.stderr)
        return self._within_limit(reply)

    def failed(self, e, send_error):
        """Tells of an error that no shell has told of; the reply."""
        lines = brief_traceback(e)
        send_error(type(e).__name__, safe_str(e), lines)
        return encode(error_content(e, {"payload": [], "user_expressions": {}, "traceback": lines}))

    def _remember_header(self, headers, request, header):
        """The client's header, for code that wants its parent (output widgets): those of the cells that run, and the
        last ones."""
        if header:
            headers[request] = header
            if len(headers) > 1000:  # a list, for subshells' threads come here, too
                headers.pop(next((each for each in list(headers) if each not in self.cells), 0), None)

    def header_of(self, request):
        return self.headers.get(request) or self.comm_headers.get(request)

    def ask(self, kind, request, content, metadata, buffers):
        answer, reply = self.answer(kind, content, False, self.interrupts.run, self.aio.run_plain)
        self.reply(answer, request, encode(reply))

    def answer(self, kind, content, busy, run, *args):
        """To a question: the frame's type, what it says; nothing where it was interrupted, or where it or code of the
        user's did not let it be answered. busy: a cell runs at the same time."""
        answer, reply = NOTHING[kind]
        try:
            function, given, reply = self._question(kind, loads(content), busy, reply)
            reply = run(*args, function, *given)
        except BaseException as e:
            if not isinstance(e, KeyboardInterrupt):
                self.log_exception("question")
        return answer, reply

    def _question(self, kind, content, busy, none):
        """What answers it: a function, its arguments, what is said where there is no answer."""
        shell, code = self.shell, content.get("code", "")
        if kind == W.IS_COMPLETE:
            function = shell.is_complete_request
            if busy:
                from .quiet import muted

                function = muted(function)
            return function, (code,), none
        cursor = content.get("cursor_pos")
        cursor = len(code) if cursor is None else max(0, min(int(cursor), len(code)))
        if kind == W.COMPLETE:
            none = dict(none, cursor_start=cursor, cursor_end=cursor)
            return shell.complete_request, (code, cursor, busy), none
        level, omit = content.get("detail_level", 0), tuple(content.get("omit_sections") or ())
        return shell.inspect_request, (code, cursor, level, omit), none

    def comm(self, kind, request, content, metadata, buffers):
        about = loads(metadata or b"{}")
        self.handle_comm(self.interrupts, self.aio, kind, request, content, about, buffers)
        self.reply(W.COMM_DONE, request, b"{}")

    def comm_message(self, request, content, about, buffers):
        self._remember_header(self.comm_headers, request, about.get("header"))
        return {"content": loads(content), "metadata": about.get("metadata") or {}, "buffers": buffers}

    def handle_comm(self, interrupts, aio, kind, request, content, about, buffers):
        message = self.comm_message(request, content, about, buffers)
        try:
            interrupts.run(aio.run_plain, self.output.flushing, self.comms.handle, kind, message)
        except BaseException as e:
            if not isinstance(e, KeyboardInterrupt):
                self.log_exception("comm")

    def shutdown(self, kind, request, content, metadata, buffers):
        self.exit_code = 0

    # what the shells say

    def send_result(self, data, metadata, transient=None):
        """EXECUTE_RESULT, or a display when the cell that owns this context has ended (a result is the pending
        cell's)."""
        request = context.current()
        if self.aio.executing and request == self.interrupts.request:
            self.output.flush_replaced()
            text = data.get("text/plain")
            if len(data) == 1 and not metadata and not transient and text.__class__ is str and len(text) < 10000:
                self.output.flush()
                self.wire.send(W.EXECUTE_RESULT, request, _TEXT_RESULT % utf8(quote(text)))
            else:
                self.send_result_of(W.EXECUTE_RESULT, request, data, metadata, transient)
        else:
            self.send_display("display_data", {"data": data, "metadata": metadata, "transient": transient or {}})

    def with_value(self, data, value):
        """The data, with the value beside it unless that would take it over limits.output, which drops both."""
        from .extras import with_value

        self.output.flush()
        most, output = self.message_max // 2, self.refusals.says.get("limits.output")
        if output:
            most = min(most, output - self.wire.said - len(encode(bundle(data))) - _AROUND)
        return with_value(data, value, most)

    def send_result_of(self, kind, request, data, metadata, transient=None):
        content = {"data": bundle(data), "metadata": metadata}
        if transient:
            content["transient"] = transient
        self._send_json(kind, request, content)

    def send_display(self, msg_type, content):
        if self.wire.forked:
            text = content.get("data", {}).get("text/plain")
            if text:
                sys.stdout.write(str(text) + "\n")
            return
        self.output.flush_replaced()
        if "data" in content:
            content = dict(content, data=bundle(content["data"]))
        self._send_json(_DISPLAYS[msg_type], context.current(), content)

    def _too_large(self, content, size):
        """What is sent for a message, or said in an error's reply, that the supervisor would refuse: losing a picture
        is better than losing the state."""
        note = "<%d bytes of output are more than limits.message allows (%d)>" % (size, self.message_max)
        if "data" in content:
            return dict(content, data={"text/plain": note}, metadata={})
        return {"ename": content["ename"], "evalue": content["evalue"][:10000], "traceback": [note]}

    def send_error(self, ename, evalue, traceback):
        if self.wire.forked:
            sys.stderr.write("\n".join(traceback) + "\n")
            return
        self._send_json(W.ERROR, context.current(), {"ename": ename, "evalue": evalue, "traceback": traceback})

    def _send_json(self, kind, request, content):
        data = encode(content)
        if len(data) > self.message_max:
            data = encode(self._too_large(content, len(data)))
        self.output.flush()
        self.wire.send(kind, request, data)

    # what only some cells need

    @property
    def kernel(self):
        if self._kernel is None:
            from .kernel import Kernel

            self._kernel = Kernel(self)
        return self._kernel

    @property
    def comms(self):
        if self._comms is None:
            from .comms import Comms

            self._comms = Comms(self)
        return self._comms

    def new_debugger(self, side, number, wire):
        from .dap import Debugger

        return Debugger(side, number, wire)

    def debug_failure(self, request, text):
        from .dap import failure

        return failure(request, text)

    def kernel_magics(self):
        from .magics import KernelMagics

        return KernelMagics

    def _on_comm_package(self, module):
        self.comms.patch_package(module)

    def _find_shim(self, name, last):
        from . import ipykernel_shim

        wanted = ipykernel_shim.STAND_INS if last else ipykernel_shim.OURS
        return ipykernel_shim.find_spec(self, name) if name in wanted else None

    def flush_c_stdio(self):
        """fflush(NULL), once an extension module that might print is loaded. ctypes costs 5 ms: not before."""
        if self.libc is None:
            seen = len(sys.modules)
            if seen == self._modules_seen:
                return
            self._modules_seen = seen
            if "ctypes" not in sys.modules and not any(map(_is_foreign_extension, list(sys.modules.values()))):
                return
            try:
                import ctypes

                self.libc = ctypes.CDLL(None)
            except Exception:
                self.libc = False
        if self.libc:
            self.libc.fflush(None)

    def finish(self):
        self.output.flush()
        atexit.register(self.output.end)  # the first to run
        sys.exit(self.exit_code)


def reserve_size():
    """A part of RLIMIT_DATA, by which limits.memory is held for one process."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return 0 if limit == resource.RLIM_INFINITY else min(limit // 16, 16 << 20)


def _is_foreign_extension(module):
    try:  # not by getattr: a lazy module would be imported by that
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except Exception:  # anything can be in sys.modules
        return False
    return isinstance(path, str) and path.endswith(".so") and "lib-dynload" not in path


def run(bundle=None):
    guest = Guest()
    guest.take_policy()
    guest.prepare(bundle)
    guest.begin()
    guest.serve()
    guest.finish()


def _exit_status(reply):
    """Of a process that ends with what a cell's reply tells."""
    if reply.get("ename") != "SystemExit":
        return 1 if reply.get("status") == "error" else 0
    try:
        return 0 if reply["evalue"] in ("", "None") else int(reply["evalue"]) & 0xFF
    except ValueError:
        return 1
