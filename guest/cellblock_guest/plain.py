"""Plain mode, for interpreters without IPython: cells of pure Python, with the value of the last expression shown."""

import ast
import builtins
import linecache
import os
import sys
import types
from codeop import Compile

from .cells import ends_with_semicolon
from .jsontext import clean_text, encode
from .tracebacks import cell_file_name, error_content, own_frames_off, safe_str
from .transactions import Rollback, as_python

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_COROUTINE = 0x80
_INCOMPLETE = 0x4000  # codeop's: from Python 3.13 such an error would have a private class of its own
_OK = b'{"status":"ok","payload":[],"user_expressions":{}}'
_RICH = (
    ("_repr_mimebundle_", None),
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


class PlainShell:
    implementation = "plain"
    value_wanted = False  # also as data
    implementation_version = "%d.%d.%d" % sys.version_info[:3]

    def __init__(self, guest):
        self.guest = guest
        self.execution_count = 1
        self.module = types.ModuleType("__main__", "The namespace of the cells.")
        self.user_ns = self.module.__dict__
        self.user_ns.update(__builtins__=builtins, exit=_Exit(self, "exit"), quit=_Exit(self, "quit"))
        sys.modules["__main__"] = self.module
        sys.displayhook = self.show
        builtins.display = self.display
        builtins.__cellblock_line__ = guest.transactions.run
        self._compile = Compile()
        self._compile.flags &= ~_INCOMPLETE
        self._payload = []

    def after_hello(self):
        pass

    def renew(self):
        return True

    def remember_undone(self, number, code):
        """There is no In to put it into."""

    # requests

    def execute(self, content, metadata):
        guest = self.guest
        silent = bool(metadata.get("silent"))
        self.execution_count = metadata.get("execution_count") or self.execution_count
        self.value_wanted = metadata.get("value")
        self._payload = []
        error = traceback = self._failure = None
        try:
            run = guest.output.flushing
            error, traceback = guest.interrupts.run(guest.aio.run_plain, run, self._run, content["code"], silent)
        except BaseException as e:
            error, traceback = e, self._format(e)
            if self._failure and isinstance(e, KeyboardInterrupt):
                error, traceback = self._failure  # it had failed already
        self._failure = None
        if guest.transactions.ended:
            error, content = None, {}
        if error is None:
            names = content.get("user_expressions")
            if not names and not self._payload:
                return _OK
            values = guest.interrupts.run(guest.aio.run_plain, self.user_expressions, names or {})
            return encode({"status": "ok", "payload": self._payload, "user_expressions": values})
        guest.send_error(type(error).__name__, safe_str(error), traceback)
        reply = error_content(error, {"payload": self._payload, "user_expressions": {}})
        reply["traceback"] = traceback
        return encode(reply)

    def _run(self, code, silent):
        """(None, None) or the exception and its traceback's lines."""
        name = cell_file_name(code)
        linecache.cache[name] = (len(code), None, [line + "\n" for line in code.splitlines()], name)
        try:
            codes = self._codes(code, name, silent)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as e:
            e.__traceback__ = None
            return e, self._format(e)
        sys.displayhook = self.show
        try:
            for at, each in enumerate(codes):
                if each.co_flags & _COROUTINE:
                    return self.guest.aio.run_coroutine(self._run_awaiting, codes[at:])
                exec(each, self.user_ns)
        except Rollback:
            return None, None
        except BaseException as e:
            if isinstance(e, MemoryError):
                self.guest.free_reserve()
            return self._failed(e)
        return None, None

    def _failed(self, e):
        if self.guest.debugger:
            BaseException.with_traceback(e, own_frames_off(e.__traceback__))
            self.guest.debugger.cell_failed(e)
        self._failure = e, self._format(e)
        return self._failure

    async def _run_awaiting(self, codes):
        try:
            for code in codes:
                if code.co_flags & _COROUTINE:
                    await self.guest.aio.awaiting(eval(code, self.user_ns))
                else:
                    exec(code, self.user_ns)
        except Rollback:
            return None, None
        except BaseException as e:
            return self._failed(e)
        return None, None

    def _codes(self, code, name, silent):
        flags = self._compile.flags | _AWAIT
        try:
            tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, True)
        except SyntaxError:
            code = as_python(code)
            if code is None:
                raise
            tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, True)
        body, last = tree.body, []
        if body and isinstance(body[-1], ast.Expr) and not silent and not ends_with_semicolon(code):
            body, last = body[:-1], [body[-1]]
        codes = []
        if body:
            codes.append(compile(ast.Module(body, tree.type_ignores), name, "exec", flags, True))
            self._compile.flags |= codes[0].co_flags & _future_mask()
        if last:
            codes.append(compile(ast.Interactive(last), name, "single", flags, True))
        return codes

    def _format(self, e):
        import traceback

        note = self.guest.refusals.annotate(e)
        try:
            lines = traceback.format_exception(type(e), e, own_frames_off(e.__traceback__))
            lines = [clean_text(line.rstrip("\n")) for line in lines]
            self.guest.refusals.say_unless_shown(note, lines)
            return lines
        except Exception:
            return ["%s: %s" % (type(e).__name__, safe_str(e))]

    def user_expressions(self, expressions):
        values = {}
        for name, expression in expressions.items():
            try:
                data, metadata = self.format(eval(expression, self.user_ns))
                values[name] = {"status": "ok", "data": data, "metadata": metadata}
            except Exception as e:
                values[name] = dict(error_content(e), traceback=self._format(e))
        return values

    # displays

    def format(self, value):
        """(data, metadata) of a value."""
        data, metadata, error = self._represent(value)
        if error is not None:
            raise error
        return data, metadata

    def _represent(self, value):
        """(data, metadata, error): its repr, and what its _repr_…_ methods give. One that fails costs its own part, as
        in IPython; the error is that of the first."""
        data, metadata, errors = {}, {}, []
        for name, mime in _RICH:
            try:
                method = getattr(value, name) if mime not in data and hasattr(type(value), name) else None
                if not callable(method):
                    continue
                found = method() if mime else method(include=None, exclude=None)
                found, about = found if isinstance(found, tuple) else (found, None)
                if mime:
                    found, about = (None if each is None else {mime: each} for each in (found, about))
                found, about = dict(found or {}), dict(about or {})
                data.update(found)
                metadata.update(about)
            except Exception as e:
                errors.append(e)
        try:
            if "text/plain" not in data:
                data["text/plain"] = repr(value)
        except Exception as e:
            errors.append(e)
        return data, metadata, errors[0] if errors else None

    def show(self, value):
        if value is None:
            return
        if type(value) is _Exit:
            return value()
        data, metadata, error = self._represent(value)
        builtins._ = value
        if data:
            self.guest.send_result(self.guest.with_value(data, value) if self.value_wanted else data, metadata)
        if error is not None:
            raise error

    def display(
        self,
        *values,
        metadata=None,
        transient=None,
        display_id=None,
        raw=False,
        clear=False,
        update=False,
        **_ignored,
    ):
        """display(value, …): shows values as rich output, as IPython's does. With raw=True they are dicts of MIME types
        already. With a display_id it gives a handle, whose update(value) shows another value in that place."""
        transient = dict(transient or {})
        if display_id:
            display_id = os.urandom(16).hex() if display_id is True else str(display_id)
            transient["display_id"] = display_id
        if update and "display_id" not in transient:
            raise TypeError("display_id required for update_display")
        if not values and display_id:  # a place to be filled later
            values, raw = [{}], True
        if clear:
            self.guest.send_display("clear_output", {"wait": True})
        for value in values:
            if raw and not isinstance(value, dict):
                raise TypeError("data must be a dict, got: %r" % (value,))
            data, found, error = (value, {}, None) if raw else self._represent(value)
            if error is not None:
                self.guest.send_error(type(error).__name__, safe_str(error), self._format(error))
            if not data and not raw:
                continue
            content = {"data": data, "metadata": _merged(found, metadata or {}), "transient": transient}
            self.guest.send_display("update_display_data" if update else "display_data", content)
        return _Handle(self, display_id) if display_id else None

    def ask_exit(self):
        self._payload.append({"source": "ask_exit", "keepkernel": False})

    # questions

    def complete_request(self, code, cursor, busy):
        import re
        import rlcompleter

        text = re.search(r"[\w.]*$", code[:cursor]).group()
        matches, completer = [], rlcompleter.Completer(self.user_ns)
        while len(matches) < 1000:
            match = completer.complete(text, len(matches)) if text else None
            if match is None:
                break
            matches.append(match)
        matches = sorted({match.rstrip("( ") for match in matches})
        return {
            "status": "ok",
            "matches": matches,
            "cursor_start": cursor - len(text),
            "cursor_end": cursor,
            "metadata": {},
        }

    def inspect_request(self, code, cursor, detail_level, omit_sections):
        missing = {"status": "ok", "found": False, "data": {}, "metadata": {}}
        value = self._object_at(code, cursor)
        if value is _NOTHING:
            return missing
        import inspect

        lines = []
        try:
            lines.append("Signature: %s%s" % (getattr(value, "__name__", ""), inspect.signature(value)))
        except (TypeError, ValueError):
            pass
        lines += ["Type: %s" % type(value).__name__, "String form: %.500s" % safe_str(value)]
        source = None
        if detail_level:
            try:
                source = inspect.getsource(value)
            except (TypeError, OSError):
                pass
        lines.append("Source:\n" + source if source else "Docstring:\n%s" % (inspect.getdoc(value) or "<no docstring>"))
        return {"status": "ok", "found": True, "data": {"text/plain": "\n".join(lines)}, "metadata": {}}

    def _object_at(self, code, cursor):
        """What the dotted name at the cursor, or before the call that the cursor is in, stands for."""
        import re

        start = re.search(r"[\w.]*$", code[:cursor]).start()
        name = re.match(r"[\w.]*", code[start:]).group().strip(".")
        if not name or name[0].isdigit():
            call = re.search(r"([\w.]+)\s*\([^()]*$", code[:cursor])
            name = call.group(1) if call else ""
        first, *rest = name.split(".")
        value = self.user_ns.get(first, getattr(builtins, first, _NOTHING)) if first else _NOTHING
        for attribute in rest:
            value = getattr(value, attribute, _NOTHING)
        return value

    def is_complete_request(self, code):
        import codeop
        from .quiet import warnings

        compiler = codeop.CommandCompiler()
        compiler.compiler.flags |= _AWAIT
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lines = code.split("\n")
                if len(lines) > 1 and lines[-1].strip() == "":
                    compile(code, "<input>", "exec", compiler.compiler.flags & ~0x200 | _AWAIT, True)
                    return {"status": "complete"}
                done = compiler(code, "<input>", "exec") is not None
        except (SyntaxError, OverflowError, ValueError):
            return {"status": "invalid"}
        if done:
            indented = lines[-1][:1] in " \t" and len(lines) > 1 and lines[-1].strip()
            if not indented:
                return {"status": "complete"}
        last = lines[-1]
        spaces = len(last) - len(last.lstrip(" ")) + (4 if last.rstrip().endswith(":") else 0)
        return {"status": "incomplete", "indent": " " * spaces}


_NOTHING = object()


def _merged(one, other):
    """Metadata, level by level; of two values the other's."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}}


class _Handle:
    """The place of a display, to show something else in it."""

    def __init__(self, shell, display_id):
        self._shell, self.display_id = shell, display_id

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, value, **how):
        self._shell.display(value, display_id=self.display_id, **how)

    def update(self, value, **how):
        self._shell.display(value, display_id=self.display_id, update=True, **how)


class _Exit:
    def __init__(self, shell, name):
        self._shell, self._name = shell, name

    def __call__(self, *args):
        self._shell.ask_exit()

    def __repr__(self):
        return "Use %s() to exit" % self._name


def _future_mask():
    import __future__

    mask = 0
    for name in __future__.all_feature_names:
        mask |= getattr(__future__, name).compiler_flag
    return mask
