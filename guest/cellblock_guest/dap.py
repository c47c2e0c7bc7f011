"""The frontend's debugger: requests of the Debug Adapter Protocol, as ipykernel answers them.

A thread serves them one at a time, also while the main thread stands at a breakpoint (see side.py). What needs no
debugger is answered here, the rest by debugpy, see pydevd_session.py. debugpy is imported by the first request that
needs it.
"""

import linecache
import os
import re
import signal
import sys
import threading

from . import context, wire_constants as W
from .jsontext import bundle, encode, loads
from .side import Lane
from .tracebacks import CELL_SUFFIX, SEED, cell_file_name, cell_folder, safe_str

_HIDDEN = {"get_ipython", "debugpy", "exit", "quit", "open", "display", "In", "Out", "_oh", "_dh", "_", "__", "___"}
_HIDDEN |= {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__annotations__", "__builtins__"}
_HIDDEN |= {"__builtin__", "__display__"}
_OF_HISTORY = re.compile(r"_\d|_i")
_NO_DEBUGPY = "the debugger needs debugpy, which is not there: `%s -m pip install debugpy`, and restart the kernel"
_shown = []  # what show() was given last


def _response(request, body=None, success=True):
    response = {"type": "response", "seq": request["seq"], "request_seq": request["seq"], "success": success}
    response.update(command=request["command"], body={} if body is None else body)
    return response


def failure(request, text):
    return dict(_response(request, success=False), message=text)


def _is_shown(variable):
    return variable["name"] not in _HIDDEN and not _OF_HISTORY.match(variable["name"])


class Debugger(Lane):
    traced = False

    def __init__(self, side, number, wire):
        super().__init__(side, number, wire, "cellblock-debugger")
        self.session = None
        self._begins = False  # the session is being made
        self.breakpoints = {}  # path -> what was set there
        self._explorer = None
        self._empty_lines = []  # transformers of IPython's that are off: (index, function)
        self._own = {
            name[1:]: getattr(self, name)
            for name in "_debugInfo _inspectVariables _richInspectVariables _modules _source _dumpCell".split()
        }
        self._with_session = {
            name[1:]: getattr(self, name)
            for name in "_initialize _attach _configurationDone _setBreakpoints _stackTrace _variables "
            "_copyToGlobals _disconnect _terminate".split()
        }

    # requests

    def serve(self, kind, request, content, metadata, buffers):
        message = loads(content)
        context.set_current(request)
        try:
            message["arguments"] = message.get("arguments") or {}
            response = self._answer(message)
            response.update(request_seq=message["seq"], seq=message["seq"], command=message["command"])
        except Exception as e:
            if isinstance(e, ModuleNotFoundError) and (e.name or "").partition(".")[0] == "debugpy":
                response = failure(message, _NO_DEBUGPY % sys.executable)
            else:
                self.guest.log_exception("debugger")
                response = failure(message, "%s: %s" % (type(e).__name__, safe_str(e)))
        data = encode(response)
        if len(data) > self.guest.message_max:
            data = encode(failure(message, "the response is larger than limits.message allows"))
        self.wire.send(W.DEBUG_REPLY, request, data)

    def event(self, event):
        data = encode(event)
        if len(data) <= self.guest.message_max:
            self.wire.send(W.DEBUG_EVENT, 0, data)

    def _answer(self, message):
        command = message["command"]
        if command == "initialize":
            self._begin_session()
        answer = self._own.get(command)
        if answer is not None:
            return answer(message, **message["arguments"])
        if self.session is None:
            return failure(message, "the debugger is not started")
        answer = self._with_session.get(command)
        return answer(message, message["arguments"]) if answer else self._forward(message)

    def _forward(self, message, **arguments):
        return self.session.call(message["command"], {**message["arguments"], **arguments})

    # without a debugger

    def _debugInfo(self, message, **_):
        session = self.session
        return _response(
            message,
            {
                "isStarted": session is not None,
                "hashMethod": "Murmur2",
                "hashSeed": SEED,
                "tmpFilePrefix": cell_folder() + "/",
                "tmpFileSuffix": CELL_SUFFIX,
                "breakpoints": [{"source": path, "breakpoints": each} for path, each in self.breakpoints.items()],
                "stoppedThreads": sorted(session.stopped) if session else [],
                "richRendering": True,
                "exceptionPaths": ["Python Exceptions"],
                "copyToGlobals": True,
            },
        )

    def _dumpCell(self, message, code, **_):
        path = cell_file_name(code)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as f:
            f.write(code)
        return _response(message, {"sourcePath": path})

    def _source(self, message, source, **_):
        path = source.get("path") or ""
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read(self.guest.message_max // 2)
        except OSError:  # a cell that was not dumped
            text = "".join(linecache.getlines(path))
        return _response(message, {"content": text}) if text else failure(message, "source unavailable")

    def _modules(self, message, startModule=0, moduleCount=0, **_):
        every, found = list(sys.modules.values()), []
        for number, module in enumerate(every):
            path = getattr(getattr(module, "__spec__", None), "origin", None)
            if isinstance(path, str) and path.endswith(".py"):
                found.append({"id": number, "name": module.__spec__.name, "path": path})
        found = found[startModule : startModule + moduleCount if moduleCount else None]
        return _response(message, {"modules": found, "totalModules": len(every)})

    def _inspectVariables(self, message, **_):
        from .pydevd_session import Explorer

        self._explorer = Explorer(self.guest.shell.user_ns)
        return self._shown_variables(message, self._explorer.variables(None))

    def _shown_variables(self, message, variables):
        return _response(message, {"variables": [each for each in variables if _is_shown(each)]})

    def _richInspectVariables(self, message, variableName, frameId=None, **_):
        name, shell = variableName, self.guest.shell
        nothing = {"data": {}, "metadata": {}}
        if not name.isidentifier():
            named = name in ("special variables", "function variables", "class variables", "protected variables")
            return _response(message, nothing, success=named)
        if self.session is None or not self.session.stopped or frameId is None:
            found = shell.user_expressions({name: name})[name]
            if found["status"] != "ok":
                return dict(failure(message, found["ename"]), body=nothing)
            data, metadata = found["data"], found["metadata"]
        else:
            expression = "__import__('sys').modules[%r].show(%s)" % (__name__, name)
            arguments = {"expression": expression, "frameId": frameId, "context": "clipboard"}
            _shown.clear()
            done = self.session.call("evaluate", arguments)
            if not done["success"] or not _shown:
                return dict(failure(message, done.get("message", "")), body=nothing)
            data, metadata = _rich(shell, _shown.pop())
        return _response(message, {"data": bundle(data), "metadata": {k: metadata[k] for k in metadata if k in data}})

    # with one

    def _begin_session(self):
        if self.session is not None and not self.session.ended:
            return
        from .pydevd_session import Session

        self._begins = True
        try:
            self.session = Session(self)
        finally:
            self._begins = False
        manager = getattr(self.guest.shell, "input_transformer_manager", None)
        for index, each in enumerate(manager.cleanup_transforms if manager else ()):
            if each.__name__ == "leading_empty_lines":  # lines must be counted as the frontend does
                self._empty_lines.append((index, each))
                del manager.cleanup_transforms[index]
                break
        self.guest.debugger = self.guest.interrupts.debugger = self

    def _end_session(self):
        session, self.session = self.session, None
        session.close()
        self._session_is_over()

    def _session_is_over(self):
        self.breakpoints.clear()
        for index, each in self._empty_lines:
            self.guest.shell.input_transformer_manager.cleanup_transforms.insert(index, each)
        self._empty_lines.clear()

    def _initialize(self, message, arguments):
        arguments.setdefault("adapterID", "")
        return self._forward(message)

    def _attach(self, message, arguments):
        """Answered when the debugger is ready: clients of a kernel send no configurationDone for it."""
        response = self.session.call("attach", self.session.attach_arguments(arguments))
        if response["success"]:
            self.session.call("configurationDone", {})
        return response

    def _configurationDone(self, message, arguments):
        return _response(message)

    def _setBreakpoints(self, message, arguments):
        response = self._forward(message)
        path = arguments.get("source", {}).get("path")
        asked = arguments.get("breakpoints") or ()
        if response["success"]:  # a line may have become the next one that holds code
            made = response["body"]["breakpoints"]
            kept = [dict(one, line=other.get("line", one["line"])) for one, other in zip(asked, made)]
            self.breakpoints.pop(path, None)
            if kept:
                self.breakpoints[path] = kept
        return response

    def _stackTrace(self, message, arguments):
        response = self._forward(message)
        frames = response["body"].get("stackFrames", []) if response["success"] else []
        inside = [at for at, frame in enumerate(frames) if self._is_cell(frame)]
        if inside:  # what called the cell is the kernel's
            response["body"].update(stackFrames=frames[: inside[-1] + 1], totalFrames=inside[-1] + 1)
        return response

    @staticmethod
    def _is_cell(frame):
        return ((frame.get("source") or {}).get("path") or "").startswith(cell_folder() + "/")

    def _variables(self, message, arguments):
        if not self.session.stopped:
            if self._explorer is None:
                self._inspectVariables(message)
            return self._shown_variables(message, self._explorer.variables(arguments["variablesReference"]))
        response = self._forward(message)
        if response["success"]:
            response["body"]["variables"] = [v for v in response["body"]["variables"] if _is_shown(v)]
        return response

    def _copyToGlobals(self, message, arguments):
        source, target = arguments["srcVariableName"], arguments["dstVariableName"]
        if not (source.isidentifier() and target.isidentifier()):
            return failure(message, "dstVariableName and srcVariableName must be valid identifiers")
        expression = {"expression": "globals()[%r]" % target, "value": source, "frameId": arguments["srcFrameId"]}
        return self.session.call("setExpression", expression)

    def _disconnect(self, message, arguments):
        response = self.session.call("disconnect", {"terminateDebuggee": False})
        self._end_session()
        return response

    def _terminate(self, message, arguments):
        """Ends the session and the cell, not the kernel."""
        if self.guest.interrupts.armed:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        self._disconnect(message, arguments)
        self.event({"type": "event", "seq": 0, "event": "terminated", "body": {}})
        return _response(message)

    # from the main thread

    def in_session(self):
        """Not by its being there: frontends ask for its state whenever they open a notebook."""
        return self._begins or self.session is not None

    def cell_begins(self):
        if self.session is not None:
            self.session.trace_this_thread()
        else:
            if sys.gettrace() is not None:
                sys.settrace(None)
            self.guest.debugger = self.guest.interrupts.debugger = None

    def let_go(self):
        """An interrupt is about to be raised, perhaps where the thread stands."""
        if self.session is not None and self.session.stopped:
            self.session.let_go()

    def cell_failed(self, e):
        if self.session is not None:
            self.session.stop_at_failure(e)

    def sockets(self):
        return self.session.sockets() if self.session else []

    def forget(self):
        """In a copy of the process: there is nobody to resume it."""
        if self.session is not None:
            session, self.session = self.session, None
            session.forget()
            self._session_is_over()


def show(value):
    """Called in the frame that is looked at."""
    _shown.append(value)


def _rich(shell, value):
    return shell.display_formatter.format(value) if hasattr(shell, "display_formatter") else shell.format(value)
