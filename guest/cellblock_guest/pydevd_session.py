"""A session with debugpy's pydevd in this process, over a socketpair: no other process, no network.

debugpy's adapter, which other editors put in between, is a process that speaks to pydevd over TCP; the little it adds
is done here and in dap.py. pydevd neither traces nor stops the frames of this package, nor its threads.
"""

import os
import sys
import threading
from queue import Empty, SimpleQueue
from socket import SHUT_RDWR, socketpair

from .jsontext import loads
from .tracebacks import is_own_file, own_folder

_KERNELS = ("IPython", "traitlets", "_distutils_hack")
_PATIENCE = 10  # seconds: nothing that is asked takes longer, but for code that a stopped frame evaluates
_RUNNING = 1  # pydevd's STATE_RUN


def _used_by_the_kernel():
    """Files of modules that also run around cells: stepping does not lead into them, and exceptions in them are not
    stopped at. As under ipykernel those are the modules of the standard library that are loaded by now."""
    library = os.path.dirname(os.__file__) + "/"
    for name, module in list(sys.modules.items()):
        path = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(path, str) and path.endswith(".py"):
            of_library = path.startswith(library) and "-packages/" not in path
            if of_library or name.partition(".")[0] in _KERNELS:
                yield path


def _import():
    """pydevd, as debugpy brings it along."""
    quiet, hook = "PYDEVD_DISABLE_FILE_VALIDATION", sys.breakpointhook
    told = os.environ.get(quiet)
    os.environ[quiet] = "1"  # else it warns of frozen modules, which nobody debugs
    try:
        import debugpy.server  # noqa: F401  (puts pydevd on the search path of modules)
        import pydevd
    finally:
        sys.breakpointhook = hook  # breakpoint() asks here, unless a session is attached
        if told is None:
            del os.environ[quiet]
    return pydevd


class Session:
    changes = 0  # pydevd's count of changed breakpoints: what it keeps about code is as old as that says

    def __init__(self, owner):
        self.owner = owner
        self.ended = False
        self.stopped = set()  # ids of threads, as clients know them
        self._pydevd = pydevd = _import()
        self._seq = 0
        self._responses = SimpleQueue()
        self._attached = False
        self._stops_at_failure = False
        self._hook = sys.breakpointhook
        self._hide_threads()
        self._socket, self._theirs = socketpair()
        connect, pydevd.start_client = pydevd.start_client, lambda host, port: self._theirs
        folder = os.path.dirname(sys.modules["debugpy"].__file__)
        try:
            pydevd.settrace(
                host="localhost",
                port=0,
                suspend=False,
                patch_multiprocessing=False,
                wait_for_ready_to_run=False,
                notify_stdin=False,
                dont_trace_start_patterns=(own_folder() + "/", folder + "/"),
                dont_trace_end_patterns=("debugpy_launcher.py",),
            )
        finally:
            pydevd.start_client = connect
        self._debugger = pydevd.get_global_debugger()
        self._debugger.mtime += Session.changes
        self._hide_threads()
        self._name_main_thread()
        sys.breakpointhook = self._on_breakpoint
        _Reader(self).start()

    def _hide_threads(self):
        """Threads of this package's that are no threading.Thread: pydevd made objects for them."""
        frames = sys._current_frames()
        for ident, thread in list(threading._active.items()):
            frame = frames.get(ident)
            while frame is not None and frame.f_back is not None:
                frame = frame.f_back
            if frame is not None and isinstance(thread, threading._DummyThread):
                if is_own_file(frame.f_code.co_filename):
                    thread.is_pydev_daemon_thread = thread.pydev_do_not_trace = True

    def _name_main_thread(self):
        """Clients of kernels take it for granted that the thread of cells is number 1."""
        from _pydevd_bundle._debug_adapter.pydevd_base_schema import BaseSchema
        from _pydevd_bundle.pydevd_constants import clear_cached_thread_id, get_thread_id

        main = threading.main_thread()
        clear_cached_thread_id(main)  # that of the process which this is a copy of
        BaseSchema.initialize_ids_translation()
        BaseSchema._translate_id_to_dap(get_thread_id(main))

    # requests

    def call(self, command, arguments):
        """The response to a request."""
        if not self._knows(command):
            return {"type": "response", "success": False, "message": "%s is not supported" % command, "body": {}}
        self._seq += 1
        message = {"type": "request", "seq": self._seq, "command": command, "arguments": arguments}
        data = _dumps(message).encode("utf-8")
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        waited = 0
        while True:
            try:
                response = self._responses.get(timeout=1)
            except Empty:
                waited += 1
                if waited >= _PATIENCE and not self.stopped and command != "evaluate":
                    raise TimeoutError("the debugger does not answer; does the thread still stand?")
                continue
            if response is None:
                raise ConnectionError("the debugger has ended")
            if response.get("request_seq") == self._seq:
                if command == "setExceptionBreakpoints" and response["success"]:
                    self._stops_at_failure = "uncaught" in (arguments.get("filters") or ())
                self._attached = self._attached or command == "configurationDone"
                return response

    def _knows(self, command):
        """pydevd never answers what it does not know."""
        from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor

        return hasattr(PyDevJsonCommandProcessor, "on_%s_request" % command.lower())

    def attach_arguments(self, arguments):
        """As ipykernel: breakpoints hold in the standard library, too. What is printed goes its usual way."""
        rules = list(arguments.get("rules") or ())
        rules += [{"path": path, "include": False} for path in _used_by_the_kernel()]
        arguments = {k: v for k, v in arguments.items() if k not in ("connect", "listen", "processId")}
        arguments.setdefault("justMyCode", False)
        if not arguments["justMyCode"]:
            arguments["debugOptions"] = ["DebugStdLib"]
        return {**arguments, "rules": rules, "redirectOutput": False, "logToFile": False}

    def received(self, message):
        """From the reader."""
        if message is None or message.get("type") == "response":
            self._responses.put(message)
            return
        kind, body = message.get("event"), message.get("body") or {}
        if kind == "stopped":
            self.owner.guest.output.flush()  # what was printed comes first
            self.stopped.add(body.get("threadId"))
        elif kind == "continued":
            self.stopped.discard(body.get("threadId"))
            if body.get("allThreadsContinued"):
                self.stopped.clear()
        if not self.ended and kind not in ("pydevdInputRequested", "terminated", "exited"):
            self.owner.event(message)

    # from the main thread

    def trace_this_thread(self):
        """A cell begins. An exception that was raised where it stood has ended the tracing of this thread."""
        info = getattr(threading.current_thread(), "additional_info", None)
        if info is not None and info.pydev_state != _RUNNING:
            info.pydev_state, info.pydev_step_cmd, info.pydev_step_stop = _RUNNING, -1, None
        if sys.version_info < (3, 12) and sys.gettrace() is None:
            self._debugger.enable_tracing()

    def let_go(self):
        from _pydevd_bundle.pydevd_thread_lifecycle import resume_threads

        resume_threads("*")

    def stop_at_failure(self, e):
        """A cell ends with an exception: the kernel catches it, so that pydevd can't know that nobody else does."""
        if not (self._stops_at_failure and self._attached and isinstance(e, Exception)):
            return
        failure = type(e), e, e.__traceback__
        handler = getattr(self._debugger, "trigger_exception_handler", None)
        if handler:
            handler(failure)
        elif sys.version_info < (3, 12):  # debugpy before 1.8.20
            from _pydevd_bundle.pydevd_breakpoints import stop_on_unhandled_exception

            thread = threading.current_thread()
            info = self._debugger.set_additional_thread_info(thread)
            info.is_tracing += 1
            try:
                stop_on_unhandled_exception(self._debugger, thread, info, failure)
            finally:
                info.is_tracing -= 1

    def _on_breakpoint(self, *args, **kwargs):
        if not self._attached or self.ended:
            return self._hook(*args, **kwargs)
        import debugpy

        debugpy.breakpoint()

    # the end

    def close(self):
        self.ended = True
        Session.changes = self._debugger.mtime + 1
        self.stopped.clear()
        self._unhook()
        self._pydevd.stoptrace()
        self._socket.shutdown(SHUT_RDWR)  # the readers at both ends return
        self._socket.close()
        self._theirs.close()

    def forget(self):
        """In a copy of the process, where none of the threads is."""
        self.ended = True
        Session.changes = self._debugger.mtime + 1
        self._unhook()
        pydevd, debugger = self._pydevd, self._debugger
        debugger.pydb_disposed = True
        pydevd.set_global_debugger(None)
        if sys.version_info >= (3, 12):
            pydevd.pydevd_sys_monitoring.stop_monitoring(all_threads=True)
        else:
            pydevd.pydevd_tracing.restore_sys_set_trace_func()
            sys.settrace(None)
            threading.settrace(None)
        for each in self._socket, self._theirs:
            if each.fileno() != -1:
                os.close(each.detach())

    def sockets(self):
        """[(fd, fd)], or []."""
        pair = self._socket.fileno(), self._theirs.fileno()
        return [] if -1 in pair else [pair]

    def _unhook(self):
        if sys.breakpointhook == self._on_breakpoint:
            sys.breakpointhook = self._hook


class _Reader(threading.Thread):
    is_pydev_daemon_thread = pydev_do_not_trace = True

    def __init__(self, session):
        super().__init__(name="cellblock-debugger-reader", daemon=True)
        self._session = session
        self._file = session._socket.makefile("rb")

    def run(self):
        try:
            while True:
                size = 0
                for line in iter(self._file.readline, b"\r\n"):
                    if not line:
                        return
                    if line.lower().startswith(b"content-length:"):
                        size = int(line[15:])
                self._session.received(loads(self._file.read(size)))
        except (OSError, ValueError):
            pass
        finally:
            self._file.close()
            self._session.received(None)


def _dumps(value):
    import json

    return json.dumps(value)


class Explorer:
    """The variables of a namespace as pydevd shows those of a frame, while nothing is stopped."""

    def __init__(self, namespace):
        _import()
        from _pydevd_bundle.pydevd_api import PyDevdAPI
        from _pydevd_bundle.pydevd_frame_utils import create_frames_list_from_frame
        from _pydevd_bundle.pydevd_suspended_frames import SuspendedFramesManager, _FramesTracker

        self._manager = SuspendedFramesManager()
        self._frame = _Frame(namespace)
        debugger = type("PyDB", (), {"variable_presentation": PyDevdAPI.VariablePresentation()})()
        self._tracker = _FramesTracker(self._manager, debugger)
        self._tracker.track("thread1", create_frames_list_from_frame(self._frame))

    def variables(self, reference):
        found = self._manager.get_variable(reference or id(self._frame))
        return [each.get_var_data() for each in found.get_children_variables()]


class _Frame:
    f_back = None
    f_lineno = 1

    class f_code:
        co_filename, co_name = "<module>", "<module>"

    def __init__(self, namespace):
        self.f_globals = self.f_locals = namespace
