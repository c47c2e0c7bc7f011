"""IPython's InteractiveShell over the wire: what ipykernel's ZMQInteractiveShell is to users, with a faster way for
plain cells.

Cells run through ZMQInteractiveShell.run_cell below, for all of IPython 7.34 to 9.x the same: transform, compile once,
run.
"""

import ast
import builtins
import os
import sys

from . import context, debuggers, ipykernel_shim, lazy_modules

with lazy_modules.stand_ins():
    from IPython.core import page
    from IPython.core.autocall import ZMQExitAutocall
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.error import InputRejected, StdinNotImplementedError, UsageError
    from IPython.core.history import HistoryManager

    try:
        from IPython.core.history import HistoryOutput as _HistoryOutput
    except ImportError:
        _HistoryOutput = None
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell, InteractiveShellABC
    from IPython.core import release
    from traitlets import Any, CBool, Type, default, observe
    from traitlets.config import Config

from .cells import CellSource, cell_file_name, count_lines_of_cells, ends_with_semicolon, is_own_file, own_frames_off
from .jsontext import encode
from .main import error_content, safe_str
from .transactions import LINES, Rollback

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_OK = b'{"status":"ok","payload":[],"user_expressions":{}}'
_COROUTINE = 0x80
_OUTPUTS_MAX = 16 << 20
_INCOMPLETE = 0x4000  # Python 3.13's console mode: errors named _IncompleteInputError


class Compiler(CachingCompiler):
    """Names cells as ipykernel does, so that debuggers and libraries recognise them."""

    def __init__(self):
        super().__init__()
        self.flags &= ~_INCOMPLETE

    def get_code_name(self, raw_code, transformed_code, number):
        return cell_file_name(raw_code)


class _ModuleCache(dict):
    """Modules by folder of sys.path, for completing imports; an entry is good until its folder changes."""

    @staticmethod
    def _stamp(path):
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return None

    def __setitem__(self, path, modules):
        super().__setitem__(path, (self._stamp(path), modules))

    def __getitem__(self, path):
        stamp, modules = super().__getitem__(path)
        if stamp != self._stamp(path):
            raise KeyError(path)
        return modules


class SessionDB(dict):
    """get_ipython().db (%store, bookmarks, completion's caches) in memory: HOME is never written."""

    def __init__(self, root=None):
        super().__init__(rootmodules_cache=_ModuleCache())

    def keys(self, globpat=None):
        if globpat is None:
            return list(dict.keys(self))
        from fnmatch import filter as matching

        return matching(dict.keys(self), globpat)

    def uncache(self, *items):
        pass


class WireHistoryManager(HistoryManager):
    """In and Out of this session, in memory: no file, no thread. The history of sessions is the supervisor's."""

    _i00 = _i = _ii = _iii = ""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.using_thread = False

    def store_inputs(self, line_num, source, source_raw=None):
        source_raw = source if source_raw is None else source_raw
        source, source_raw = source.rstrip("\n"), source_raw.rstrip("\n")
        if self._exit_re.match(source_raw.strip()):
            return
        raw = self.input_hist_raw
        parsed = self.input_hist_parsed
        while len(raw) < line_num:  # numbers that ran in an earlier guest of this kernel
            raw.append("")
            parsed.append("")
        if line_num < len(raw):  # a subshell's cell, which began after a later one of another shell
            parsed[line_num], raw[line_num] = source, source_raw
            return
        parsed.append(source)
        raw.append(source_raw)
        self._iii, self._ii, self._i, self._i00 = self._ii, self._i, self._i00, source_raw
        variables = {"_i": self._i, "_ii": self._ii, "_iii": self._iii, "_i%d" % line_num: source_raw}
        self.shell.user_ns.update(variables)
        self.shell.user_ns_hidden.update(variables)

    def store_output(self, line_num):
        pass

    def writeout_cache(self, conn=None):
        pass

    def end_session(self):
        pass


class WireDisplayHook(DisplayHook):
    """Sends what an expression at a cell's end evaluates to."""

    topic = b"execute_result"
    _is_active = False
    exec_result = None  # a trait in IPython; set for every cell

    @property
    def is_active(self):
        return self._is_active

    @property
    def prompt_count(self):
        return self.shell.cell_number

    def quiet(self):
        return ends_with_semicolon(self.shell.cell_text)

    def __call__(self, result=None):
        if result is None:
            return
        self.check_for_underscore()
        if self.quiet():
            return
        shell = self.shell
        text = shell.plain_text(result)
        self._is_active = True
        try:
            if text is not None:
                data, metadata = {"text/plain": text}, {}
            else:
                data, metadata = self.compute_format_data(result)
            self._remember(result)
            if self.exec_result is not None:
                self.exec_result.result = result
            if data:
                shell.guest.send_result(data, metadata)
                shell.remember_output("execute_result", data)
                shell.history_manager.output_hist_reprs[shell.cell_number] = data.get("text/plain", "")
        finally:
            self._is_active = False

    def _remember(self, result):
        """_, __, ___, _n and Out[n]."""
        shell = self.shell
        namespace, hidden, number = shell.user_ns, shell.user_ns_hidden, shell.cell_number
        out = namespace.get("_oh")
        if not self.cache_size or out is None or result is out:
            return
        if len(out) >= self.cache_size and self.do_full_cache:
            self.cull_cache()
        variables = {}
        if "_" not in builtins.__dict__ and not self._underscores_taken(namespace, hidden):
            variables = {"_": result, "__": self._, "___": self.__}
        self.___, self.__, self._ = self.__, self._, result
        if self.do_full_cache:
            variables["_%d" % number] = result
            out[number] = result
        namespace.update(variables)
        hidden.update(variables)

    def _underscores_taken(self, namespace, hidden):
        """True if the user assigned one of them."""
        for name in ("_", "__", "___"):
            if name in namespace:
                value = namespace[name]
                if name in hidden:
                    if hidden[name] is not value:
                        return True
                elif value is not getattr(self, name):
                    return True
        return False


class WireDisplayPublisher(DisplayPublisher):
    topic = b"display_data"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._hook_lists = {}

    def _hooks(self):
        from _thread import get_ident

        return self._hook_lists.setdefault(get_ident(), [])

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_ignored):
        self._validate_data(data, metadata)
        content = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        self._send("update_display_data" if update else "display_data", content)
        if not update:
            self.shell.remember_output("display_data", data)

    def clear_output(self, wait=False):
        self._send("clear_output", {"wait": bool(wait)})

    def _send(self, msg_type, content):
        guest = self.shell.guest
        if self._hook_lists:
            message = {
                "header": {"msg_type": msg_type},
                "msg_type": msg_type,
                "content": content,
                "parent_header": guest.kernel.get_parent().get("header", {}),
                "metadata": {},
            }
            for hook in self._hooks():
                message = hook(message)
                if message is None:
                    return
            content = message["content"]
        guest.send_display(msg_type, content)

    def register_hook(self, hook):
        self._hooks().append(hook)

    def unregister_hook(self, hook):
        try:
            self._hooks().remove(hook)
            return True
        except ValueError:
            return False

    def set_parent(self, parent):
        pass


class ZMQInteractiveShell(InteractiveShell):
    __module__ = "ipykernel.zmqshell"  # libraries look at it

    displayhook_class = Type(WireDisplayHook)
    display_pub_class = Type(WireDisplayPublisher)
    compiler_class = Type(Compiler)
    readline_use = CBool(False)
    autoindent = CBool(False)
    data_pub_class = Any()
    kernel = Any()
    # Traits in IPython, whose checks and notifications cost as much as a small cell:
    execution_count = 1
    last_execution_succeeded = True
    last_execution_result = None
    keepkernel_on_exit = None
    profile_dir = Any()  # as strings IPython's traits import the modules of their classes at once
    inspector_class = Any()

    in_main_thread = True  # False in the shell of a subshell
    implementation = "ipython"
    implementation_version = release.version

    def __init__(self, guest, **kwargs):
        self.guest = guest
        self.cell_number = 1
        self.cell_text = ""
        self._completer = None
        self._highlighting = False
        self._session_db = SessionDB()
        self._last_traceback = None
        self._refusal = None
        self._outputs_kept = 0
        self._errors_sent = 0
        self._display_error = None
        super().__init__(**kwargs)
        self._source = CellSource(self)

    # set-up: what differs from a terminal

    @property
    def db(self):
        return self._session_db

    @db.setter
    def db(self, db):
        pass

    @default("inspector_class")
    def _default_inspector_class(self):
        from IPython.core.oinspect import Inspector

        return Inspector

    @observe("colors")
    def init_syntax_highlighting(self, changes=None):
        """The inspector and the colouring of sources are made when they are first used, or colours change."""
        if changes is not None or self._highlighting or hasattr(InteractiveShell, "init_inspector"):
            self._highlighting = True
            super().init_syntax_highlighting(changes)

    def __getattr__(self, name):
        if name in ("inspector", "pycolorize") and not self._highlighting:
            self._highlighting = True
            self.init_syntax_highlighting()
            return getattr(self, name)
        raise AttributeError("'ZMQInteractiveShell' object has no attribute %r" % name)

    @default("exiter")
    def _default_exiter(self):
        return ZMQExitAutocall(self)

    @default("kernel")
    def _default_kernel(self):
        return self.guest.kernel

    @observe("ipython_dir")
    def _ipython_dir_changed(self, change):
        """IPython makes the folder here; we never write to it."""

    def init_environment(self):
        pass

    def init_virtualenv(self):
        pass

    def init_pdb(self):
        """pdb's own prompt would take an interrupt for an empty line, and ask again."""
        super().init_pdb()
        self.guest.finder.after("IPython.core.debugger", debuggers.interruptible)
        self.guest.finder.after("pdb", debuggers.with_debugger)

    def init_history(self):
        self.history_manager = WireHistoryManager(shell=self, parent=self, enabled=False, hist_file=":memory:")
        self.configurables.append(self.history_manager)

    def init_hooks(self):
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(self._page), 99)

    def init_data_pub(self):
        pass

    def init_completer(self):
        """Made when it is first used: a first cell does without."""

    @property
    def Completer(self):
        if self._completer is None:
            super().init_completer()
        return self._completer

    @Completer.setter
    def Completer(self, completer):
        self._completer = completer

    def init_magics(self):
        super().init_magics()
        names = (
            "edit",
            "ed",
            "clear",
            "less",
            "more",
            "man",
            "pip",
            "connect_info",
            "qtconsole",
            "autosave",
            "store",
            "subshell",
            *LINES,
        )
        if hasattr(self.magics_manager, "find"):  # since IPython 9.x classes can be named and are imported when used
            for name in names:
                self.magics_manager.register_lazy(name, "cellblock_guest.magics:KernelMagics", "line")
        else:
            from .magics import KernelMagics

            self.register_magics(KernelMagics)

    def _page(self, strg, start=0, screen_lines=0, pager_cmd=None):
        data = strg if isinstance(strg, dict) else {"text/plain": strg}
        self.payload_manager.write_payload({"source": "page", "data": data, "start": max(0, start)})

    def set_next_input(self, s, replace=False):
        self.payload_manager.write_payload({"source": "set_next_input", "text": s, "replace": replace})

    def ask_exit(self):
        self.exit_now = not self.keepkernel_on_exit
        self.payload_manager.write_payload({"source": "ask_exit", "keepkernel": bool(self.keepkernel_on_exit)})

    def enable_gui(self, gui=None):
        if gui not in (None, "", "inline", "asyncio", "agg", "ipympl"):
            raise UsageError("no GUI event loop in the jail: %r (there is no display); use %%matplotlib inline" % gui)

    def get_parent(self):
        return self.guest.kernel.get_parent()

    def set_parent(self, parent):
        self.guest.kernel.set_parent(None, parent)

    def set_thread_parent(self, parent):
        return self.guest.kernel.set_parent(None, parent)

    def reset_thread_parent(self, token):
        context.reset(token)

    @property
    def parent_header(self):
        return self.get_parent()

    def system_piped(self, cmd):
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        from .commands import Command

        exit_code = Command(self.guest, self.var_expand(cmd, depth=1)).run()
        self.user_ns["_exit_code"] = exit_code
        self.guest.refusals.after_command(cmd, exit_code)
        if exit_code and getattr(self, "system_raise_on_error", False):
            from subprocess import CalledProcessError

            raise CalledProcessError(exit_code, cmd)

    system = system_piped

    # errors

    def showtraceback(self, exc_tuple=None, filename=None, tb_offset=None, exception_only=False, **kwargs):
        try:
            etype, value, tb = self._get_exc_info(exc_tuple)
        except ValueError:
            print("No traceback available to show.", file=sys.stderr)
            return
        self._refusal = self.guest.refusals.annotate(value)
        if etype is UsageError:
            self._showtraceback(etype, value, ["UsageError: %s" % value])
        elif _has_group(value):
            import traceback

            self._showtraceback(etype, value, traceback.format_exception(etype, value, own_frames_off(tb)))
        else:
            super().showtraceback(exc_tuple, filename, tb_offset, exception_only, **kwargs)

    def showsyntaxerror(self, filename=None, running_compiled_code=False):
        etype, value, tb = self._get_exc_info()
        if filename:
            value.filename = filename
        stack = []
        if running_compiled_code:
            import traceback

            stack = [each for each in traceback.extract_tb(own_frames_off(tb)) if not is_own_file(each.filename)]
        self._showtraceback(etype, value, self.SyntaxTB.structured_traceback(etype, value, stack))

    def _showtraceback(self, etype, evalue, stb):
        self._last_traceback = stb = [str(line) for line in stb]
        self._errors_sent += 1
        if self.displayhook.is_active:
            self._display_error = evalue
        self.guest.send_error(etype.__name__, safe_str(evalue), stb)
        exceptions = getattr(self.history_manager, "exceptions", None)
        if exceptions is not None:
            exceptions[self.cell_number] = {"ename": etype.__name__, "evalue": safe_str(evalue), "traceback": stb}
        note, self._refusal = self._refusal, None
        self.guest.refusals.say_unless_shown(note, stb)

    def remember_output(self, kind, data):
        """For %notebook, where this IPython writes outputs too; up to a bound."""
        outputs = getattr(self.history_manager, "outputs", None)
        if outputs is None or _HistoryOutput is None:
            return
        self._outputs_kept += sum(len(value) for value in data.values() if isinstance(value, (str, bytes))) + 100
        if self._outputs_kept < _OUTPUTS_MAX:
            outputs[self.cell_number].append(_HistoryOutput(output_type=kind, bundle=data))

    # running cells

    def plain_text(self, value):
        """The text of a value that has no other representation, the quick way; None = ask the formatters."""
        return self._source.plain_text(value)

    def transform_cell(self, raw_cell):
        cell = self._source.untouched(raw_cell)
        return super().transform_cell(raw_cell) if cell is None else cell

    def run_cell(self, raw_cell, store_history=False, silent=False, shell_futures=True, cell_id=None, cell_meta=None):
        before = self.cell_number, self.cell_text
        try:
            return self._run(raw_cell, store_history, silent, shell_futures, cell_id)
        finally:
            self.cell_number, self.cell_text = before

    def _run(self, raw_cell, store_history, silent, shell_futures, cell_id):
        info = _make_info(raw_cell, store_history, silent, shell_futures, cell_id)
        result = ExecutionResult(info)
        events = self.events
        try:
            if not raw_cell or raw_cell.isspace():
                return result
            number = self.execution_count
            self.cell_number = result.execution_count = number
            try:
                self._run_in_traps(raw_cell, store_history and not silent, silent, shell_futures, result)
            finally:
                if store_history and not silent:
                    self.execution_count = number + 1
        finally:
            self.last_execution_succeeded = result.success
            self.last_execution_result = result
            events.trigger("post_execute")
            if not silent:
                events.trigger("post_run_cell", result)
        return result

    def _run_in_traps(self, raw_cell, store_history, silent, shell_futures, result):
        failure = None
        try:
            cell = self.transform_cell(raw_cell)
        except Exception:
            cell, failure = raw_cell, sys.exc_info()
        result.info.transformed_cell = cell
        self.cell_text = cell
        self.events.trigger("pre_execute")
        if not silent:
            self.events.trigger("pre_run_cell", result.info)
        if store_history and not ("get_ipython().run_line_magic(" in cell and "paste" in cell):
            self.history_manager.store_inputs(self.cell_number, cell, raw_cell)
        if not silent and self._logging():
            self.logger.log(cell, raw_cell)
        if failure is not None:
            self.showtraceback(failure)
            result.error_before_exec = failure[1]
            return
        compiler = self.compile if shell_futures else self.compiler_class()
        with self.builtin_trap:
            name = compiler.cache(cell, self.cell_number, raw_code=raw_cell)
            with self.display_trap:
                codes = self._compile(cell, name, compiler, silent, result)
                if codes:
                    hook = self.displayhook
                    hook.exec_result = result
                    try:
                        self._run_codes(codes, result)
                    finally:
                        hook.exec_result = None

    def _logging(self):
        logger = self.__dict__.get("_logger") or self.__dict__.get("logger")
        return logger is not None and getattr(logger, "log_active", False)

    def _compile(self, cell, name, compiler, silent, result):
        """Code objects to run in order, or None after an error was shown."""
        interactivity = "none" if silent else self.ast_node_interactivity
        flags = compiler.flags | (_AWAIT if self.autoawait else 0)
        try:
            if interactivity == "last_expr" and not self.ast_transformers and self._source.is_one_statement(cell):
                return [compile(cell, name, "single", flags, True)]
            tree = compiler.ast_parse(cell, filename=name)
            tree = self.transform_ast(tree)
            return self._compile_tree(tree.body, name, compiler, interactivity)
        except self.custom_exceptions as e:
            self.CustomTB(*sys.exc_info())
            result.error_before_exec = e
        except InputRejected as e:
            self.showtraceback()
            result.error_before_exec = e
        except (OverflowError, SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as e:
            self.showsyntaxerror() if isinstance(e, SyntaxError) else self.showtraceback()
            result.error_before_exec = e
        return None

    def _compile_tree(self, nodes, name, compiler, interactivity):
        if not nodes:
            return []
        if interactivity == "last_expr_or_assign":
            _append_target(nodes)
        if interactivity in ("last_expr", "last_expr_or_assign"):
            interactivity = "last" if isinstance(nodes[-1], ast.Expr) else "none"
        first = {"none": len(nodes), "last": len(nodes) - 1, "all": 0}[interactivity]
        with compiler.extra_flags(_AWAIT if self.autoawait else 0):
            codes = []
            if first:
                try:
                    codes.append(compiler(ast.Module(nodes[:first], []), name, "exec"))
                except SyntaxError:
                    return self._compile_one_by_one(nodes, name, compiler)
            for node in nodes[first:]:
                codes.append(compiler(ast.Interactive([node]), name, "single"))
            return codes

    @staticmethod
    def _compile_one_by_one(nodes, name, compiler):
        """One statement is wrong by itself, as a lone `return`: what is before it runs, then its error shows."""
        codes = []
        for node in nodes:
            try:
                codes.append(compiler(ast.Module([node], []), name, "exec"))
            except SyntaxError as e:
                codes.append(e)
                break
        return codes

    def _run_codes(self, codes, result):
        """Runs code objects one after the other, an awaiting one and the rest as a coroutine."""
        __tracebackhide__ = "__ipython_bottom__"
        codes = iter(codes)
        namespace, local = self.user_module.__dict__, self.user_ns
        excepthook = sys.excepthook
        if self.in_main_thread:
            sys.excepthook, self.sys_excepthook = self.excepthook, excepthook
        try:
            for code in codes:
                if isinstance(code, SyntaxError):
                    raise code
                if code.co_flags & _COROUTINE:
                    if self.in_main_thread:
                        sys.excepthook = excepthook
                    return self.guest.aio.run_coroutine(self._run_awaiting(code, codes, result))
                exec(code, namespace, local)
        except BaseException as e:
            self._show_failure(e, result)
        finally:
            if self.in_main_thread:
                sys.excepthook = excepthook

    async def _run_awaiting(self, code, codes, result):
        __tracebackhide__ = "__ipython_bottom__"
        namespace, local = self.user_module.__dict__, self.user_ns
        awaiting = self.guest.aio.awaiting
        try:
            while code is not None:
                if isinstance(code, SyntaxError):
                    raise code
                if code.co_flags & _COROUTINE:
                    await awaiting(eval(code, namespace, local))
                else:
                    exec(code, namespace, local)
                code = next(codes, None)
        except BaseException as e:
            self._show_failure(e, result)

    def _show_failure(self, e, result):
        if isinstance(e, Rollback):
            return
        if isinstance(e, MemoryError):
            self.guest.free_reserve()
        result.error_in_exec = e
        e.__traceback__ = own_frames_off(e.__traceback__)
        if self.guest.debugger:
            self.guest.debugger.cell_failed(e)
        info = type(e), e, e.__traceback__
        if isinstance(e, self.custom_exceptions):
            self.CustomTB(*info)
        elif isinstance(e, SystemExit):
            self.showtraceback(info, exception_only=True)
        elif type(e).__name__ != "BdbQuit":
            self.showtraceback(info, tb_offset=0, running_compiled_code=True)

    # requests

    def execute(self, content, metadata):
        """Runs an EXECUTE request; the reply's JSON."""
        guest = self.guest
        silent = bool(metadata.get("silent"))
        store = bool(metadata.get("store_history", True)) and not silent
        self.execution_count = metadata.get("execution_count") or self.execution_count
        self._errors_sent, self._last_traceback, self._display_error = 0, None, None
        try:
            result = guest.interrupts.run(
                guest.aio.run_plain, self._run, content["code"], store, silent, True, metadata.get("cell_id")
            )
            error = _first(result.error_before_exec, result.error_in_exec, self._display_error)
        except BaseException as e:  # raised by a hook, or an interrupt after the cell's own code
            error = e
        payloads, expressions = self.payload_manager.read_payload(), content.get("user_expressions")
        if guest.transactions.ended:
            error = expressions = None
        if payloads:
            self.payload_manager.clear_payload()
        if error is None and not payloads and not expressions:
            return _OK
        if error is None:
            expressions = guest.interrupts.run(guest.aio.run_plain, self.user_expressions, expressions or {})
            return encode({"status": "ok", "payload": payloads, "user_expressions": expressions})
        if not self._errors_sent:
            guest.send_error(type(error).__name__, safe_str(error), [])
        reply = error_content(error, {"payload": payloads, "user_expressions": {}})
        reply["traceback"] = self._last_traceback or []
        return encode(reply)

    def remember_undone(self, number, code):
        """A cell whose effects are gone: In keeps its source."""
        self.history_manager.store_inputs(number, code)

    def after_hello(self):
        """Start-up files print and fail as cells do, so they run when the supervisor listens."""
        from .profile import run_startup
        from .warm import Warm

        run_startup(self, self.guest)
        self.warm = Warm(self, self.guest.wire.fd)

    def complete_request(self, code, cursor, busy):
        from .introspection import complete

        return complete(self, code, cursor, busy)

    def inspect_request(self, code, cursor, detail_level, omit_sections):
        from .introspection import inspect

        return inspect(self, code, cursor, detail_level, omit_sections)

    def is_complete_request(self, code):
        status, spaces = self.input_transformer_manager.check_complete(code)
        return {"status": status, "indent": " " * (spaces or 0)} if status == "incomplete" else {"status": status}


InteractiveShellABC.register(ZMQInteractiveShell)


def _make_info(raw_cell, store_history, silent, shell_futures, cell_id):
    return ExecutionInfo(raw_cell, store_history, silent, shell_futures, cell_id)


def _first(*errors):
    return next((error for error in errors if error is not None), None)


def _has_group(value):
    group = getattr(builtins, "BaseExceptionGroup", ())
    seen = 0
    while value is not None and seen < 50:
        if isinstance(value, group):
            return True
        value, seen = value.__context__, seen + 1
    return False


def _append_target(nodes):
    """For ast_node_interactivity = last_expr_or_assign: shows what the last statement assigned."""
    last = nodes[-1]
    target = None
    if isinstance(last, ast.Assign) and len(last.targets) == 1:
        target = last.targets[0]
    elif isinstance(last, (ast.AugAssign, ast.AnnAssign)):
        target = last.target
    if isinstance(target, ast.Name):
        nodes.append(ast.fix_missing_locations(ast.Expr(ast.Name(target.id, ast.Load()))))


def _config(guest):
    config = Config()
    config.IPKernelApp.tqdm = "tqdm and others look for this key"
    config.HistoryManager.enabled = False
    return config


def make_shell(guest):
    from IPython.core import interactiveshell, ultratb
    from .profile import profile_config

    if hasattr(interactiveshell, "PickleShareDB"):
        interactiveshell.PickleShareDB = SessionDB  # IPython 7 and 8 open one at once
    count_lines_of_cells(ultratb)
    ipython_dir, profile_dir, config = profile_config(_config(guest), guest)
    shell = ZMQInteractiveShell(guest, ipython_dir=ipython_dir, profile_dir=profile_dir, config=config)
    for cls in ZMQInteractiveShell._walk_mro():
        cls._instance = shell
    shell.builtin_trap.__enter__()  # for good: tasks and threads between cells need get_ipython() as well
    guest.prompt.error = StdinNotImplementedError
    guest.transactions.error = UsageError
    guest.shell = shell
    ipykernel_shim.preload(guest)
    return shell
