"""Host tools: functions of the client's, put into the namespace while a cell of its session runs.

A call is a question to the client (prompt.py, in subshells their own), with what is called in its metadata; results
come as the supervisor has checked them. One question of a shell is open at a time: whoever comes first takes what waits
along, the others find their results. What awaits is served by a thread, so that the loop goes on.

Imported with the first cell that has tools. Nothing here is trusted: what a cell may call the supervisor decides.
"""

from _thread import RLock, allocate_lock
from collections import deque
from keyword import iskeyword

from . import context
from .jsontext import encode, encode_strict, loads
from .threads import start_deaf

_TOGETHER = 256  # calls in one question
_LOOK = 0.05  # seconds between two looks, where an interrupt can't end a wait
_DEPTH = 20  # what is around the arguments is nested, too
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_CANCELLED = "%s: %s; whether the host did it is not known"


class HostToolError(Exception):
    """A host tool failed, or could not be called. The text begins with the type of the host's error."""


class HostToolCancelledError(KeyboardInterrupt):
    """A call of a host tool ended without its result: by an interrupt, the end of its cell, or of its time."""


class _Left:
    """In a signature: the host has a default."""

    def __repr__(self):
        return "..."


_CLASSES = {cls.__name__: cls for cls in (HostToolError, HostToolCancelledError)}


class _Call:
    def __init__(self, name, text):
        self.name, self.text = name, text
        self.done = False
        self.on_done = None
        self._value = self._error = None

    def finish(self, value, error=None):
        self._value, self._error, self.done = value, error, True
        if self.on_done:
            self.on_done()

    def take(self, result):
        if result is None:
            self.finish(None, HostToolError("%s: the client's answer has no result of this call" % self.name))
        elif "error" in result:
            error = result["error"]
            self.finish(None, HostToolError("%s: %s" % (error["type"], error["message"])))
        else:
            self.finish(result["ok"])

    def cancel(self, why):
        self.finish(None, HostToolCancelledError(_CANCELLED % (self.name, why)))

    def outcome(self):
        if self._error is not None:
            raise self._error
        return self._value


class _Cell:
    """A cell that may call tools, while it runs."""

    def __init__(self, guest, request, session, functions, lane):
        self.guest, self.request, self.session, self.functions, self.lane = guest, request, session, functions, lane
        self.over = False
        self.waiting = deque()
        self._served = False  # a thread serves what awaits
        self._guard = allocate_lock()
        self._lock = RLock() if lane else guest.prompt.lock

    def call(self, call):
        """Waits for its result, in any thread."""
        self.waiting.append(call)
        try:
            while not call.done:
                if self._take_turn():
                    try:
                        if not call.done:
                            self._round()
                    finally:
                        self._lock.release()
        except KeyboardInterrupt as e:
            if isinstance(e, HostToolCancelledError):
                raise
            raise HostToolCancelledError(_CANCELLED % (call.name, "interrupted")) from None
        finally:
            self._forget(call)
        return call.outcome()

    def _take_turn(self):
        """An interrupt of a subshell does not reach a thread that waits for a lock."""
        return self._lock.acquire(True, _LOOK) if self.lane else self._lock.acquire()

    def _forget(self, call):
        try:
            self.waiting.remove(call)
        except ValueError:
            pass

    async def wait(self, call):
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def wake():
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
            except RuntimeError:  # the loop is closed
                pass

        call.on_done = wake
        self.waiting.append(call)
        loop.call_soon(self._serve)  # behind what asks at the same time
        try:
            await future
        finally:
            self._forget(call)
        return call.outcome()

    def _serve(self):
        with self._guard:
            if self._served:
                return
            self._served = True
        try:
            start_deaf(self._serve_all)
        except RuntimeError:
            self._served = False
            for call in self._next():
                call.finish(None, HostToolError("%s: no thread could be started to ask the client" % call.name))

    def _serve_all(self):
        while True:
            with self._guard:
                if not self.waiting:
                    self._served = False
                    return
            try:
                if self._take_turn():
                    try:
                        self._round()
                    finally:
                        self._lock.release()
            except BaseException:  # the calls know
                pass

    def _next(self):
        batch, size = [], 0
        while self.waiting and len(batch) < _TOGETHER:
            try:
                call = self.waiting.popleft()
            except IndexError:
                break
            size += len(call.text) + len(call.name) + 3  # the prompt names it, and each is behind a comma
            if batch and size > self.guest.message_max:
                self.waiting.appendleft(call)
                break
            batch.append(call)
        return batch

    def _round(self):
        """Asks for what waits. The lock is held."""
        batch = self._next()
        if not batch:
            return
        why = "its cell has ended"
        try:
            if not self.over:
                results = self._ask(batch)
                for call, result in zip(batch, results):
                    call.take(result)
        except EOFError as e:
            why = str(e)
        except BaseException:
            why = "interrupted"
            raise
        finally:
            for call in batch:
                if not call.done:
                    call.cancel(why)

    def _ask(self, batch):
        names = ", ".join(sorted({call.name for call in batch}))
        prompt = "[this cell calls %s on your side, which this program does not serve: interrupt it] " % names
        question = encode({"prompt": prompt, "password": False})
        ask = self.lane.ask if self.lane else self.guest.prompt.ask_on_wire
        answer = loads(ask(question, b",".join(call.text for call in batch)))
        if "nobody" in answer:
            raise EOFError("its client is gone")
        if "error" in answer:
            return [{"error": {"type": call.name, "message": answer["error"]}} for call in batch]
        return answer["results"]


class HostTools:
    def __init__(self, guest):
        self._guest = guest
        self._cells = {}  # request -> _Cell
        self._known = {}  # name -> (what was registered, its function)

    # the namespace

    def begin(self, request, metadata, lane=None):
        functions = {spec["name"]: self._function(spec) for spec in metadata["tools"]}
        session = (metadata.get("header") or {}).get("session")
        self._cells[request] = _Cell(self._guest, request, session, functions, lane)
        for name, function in (*functions.items(), *_CLASSES.items()):
            self._put(name, function)

    def end(self, request):
        cell = self._cells.pop(request, None)
        if cell is None:
            return
        cell.over = True
        for call in cell._next() if cell.waiting else ():
            call.cancel("its cell has ended")
        others = {}
        for other in self._cells.values():
            others.update(other.functions, **_CLASSES)
        for name, function in (*cell.functions.items(), *_CLASSES.items()):
            self._take_out(name, function, others.get(name))

    def after_thaw(self):
        """In a twin that takes over: cells that ran when it was made, in subshells, are not there."""
        for request in list(self._cells):
            self.end(request)

    def _put(self, name, function):
        names = self._guest.shell.user_ns
        if name not in names or getattr(names[name], "__cellblock_tool__", None):
            names[name] = function

    def _take_out(self, name, function, other):
        names = self._guest.shell.user_ns
        if names.get(name) is function:
            if other is None:
                del names[name]
            else:
                names[name] = other

    def _function(self, spec):
        known = self._known.get(spec["name"])
        if known and known[0] == spec:
            return known[1]
        function = self._make(spec)
        self._known[spec["name"]] = spec, function
        return function

    def _make(self, spec):
        name = spec["name"]

        def call(*args, **kwargs):
            cell, made = self._call(name, args, kwargs)
            return cell.call(made)

        async def call_and_wait(*args, **kwargs):
            cell, made = self._call(name, args, kwargs)
            return await cell.wait(made)

        function = call_and_wait if spec.get("awaitable") else call
        function.__name__ = function.__qualname__ = name
        function.__module__ = "__main__"
        function.__doc__ = spec.get("description")
        function.__cellblock_tool__ = True
        signature = _signature(spec.get("inputSchema"))
        if signature:
            function.__signature__ = signature
        return function

    # calls

    def _call(self, name, args, kwargs):
        cell = self._cell_of(name)
        self._guest.output.flush_replaced()
        text = '{"tool":"%s","args":%s,"kwargs":%s}'
        call = _Call(name, (text % (name, encode_strict(args, _DEPTH), encode_strict(kwargs, _DEPTH))).encode("utf-8"))
        if len(call.text) > self._guest.message_max:
            raise HostToolError(
                "%s: %d bytes of arguments are more than limits.message allows (%d)"
                % (name, len(call.text), self._guest.message_max)
            )
        return cell, call

    def _cell_of(self, name):
        """Of the code that calls: its own, or the main shell's of the same session where that has ended."""
        guest, request = self._guest, context.current()
        if guest.wire.forked:
            raise HostToolError("%s: a child process can't call host tools; the cell's own process can" % name)
        cell = self._cells.get(request)
        if cell is None and not self._runs(request):
            session = (guest.header_of(request) or {}).get("session")
            cell = self._cells.get(guest.interrupts.request)
            if cell is None or cell.session != session:
                raise HostToolError("%s: the cell that this belongs to has ended" % name)
        elif cell is None and not self._asks(request):
            raise HostToolError("%s: this cell was sent without allow_stdin, so its client can't be asked" % name)
        if cell is None or name not in cell.functions:
            raise NameError("name %r is not defined" % name)
        return cell

    def _runs(self, request):
        lane = context.subshell()
        return request in (self._guest.interrupts.request, lane and lane.request)

    def _asks(self, request):
        lane = context.subshell()
        return lane.asks if lane and lane.request == request else self._guest.prompt.request == request


def _signature(schema):
    """Of an object's properties, where Python can say it; else None."""
    from inspect import Parameter, Signature

    schema = schema or {}
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None
    parameters = []
    for name, about in properties.items():
        kind = about.get("type") if isinstance(about, dict) else None
        if not name.isidentifier() or iskeyword(name):
            return None
        parameters.append(
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=Parameter.empty if name in required else _Left(),
                annotation=_TYPES.get(kind, Parameter.empty) if isinstance(kind, str) else Parameter.empty,
            )
        )
    try:
        return Signature(parameters)
    except ValueError:  # one that must be there behind one that need not
        return None
