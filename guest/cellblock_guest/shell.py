"""IPython's InteractiveShell over the wire: what ipykernel's ZMQInteractiveShell is to users, with a faster way for
plain cells.

Cells run through ZMQInteractiveShell.run_cell below, for all of IPython 7.21 to 9.x the same: transform, compile once,
run.
"""

import ast
import builtins
import sys
from os import environ, getcwd

from . import context, debuggers, ipykernel_shim, lazy_modules, wire_constants as W

with lazy_modules.stand_ins():
    from IPython.core import page
    from IPython.core.autocall import ZMQExitAutocall
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.error import InputRejected, StdinNotImplementedError, UsageError

    try:
        from IPython.core.history import HistoryOutput as _HistoryOutput
    except ImportError:
        _HistoryOutput = None
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell, InteractiveShellABC
    from IPython.core import release
    from traitlets import Any, CBool, Type, default, observe
    from traitlets.config import Config

from .cells import CellSource, count_lines_of_cells
from .jsontext import encode
from .shell_parts import Compiler, SessionDB, WireDisplayHook, WireDisplayPublisher, WireHistoryManager
from .tracebacks import brief_traceback, error_content, is_own_file, own_frames_off, safe_str
from .transactions import LINES, Rollback

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_OK = b'{"status":"ok","payload":[],"user_expressions":{}}'
_COROUTINE = 0x80
_OUTPUTS_MAX = 16 << 20
_OUTPUT_BYTES = 1000  # of an output beside its data: a flood of small ones is bounded too
_VALUE_BYTES = 60  # of a value in it, beside its text: a list of numbers is mostly that


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

    warm = None  # main.py asks for it
    in_main_thread = True  # False in the shell of a subshell
    value_wanted = False  # also as data
    _in_callback = _callback_interrupted = False
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
        self._last_error = None  # of those
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
        if gui not in (None, "", "inline", "asyncio", "agg", "ipympl", "widget", "nbagg", "notebook", "webagg"):
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

        command = Command(self.guest, self.var_expand(cmd, depth=1))
        exit_code = command.run()
        self.user_ns["_exit_code"] = exit_code
        self.guest.refusals.after_command(cmd, exit_code, command.shown)
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
        if self._in_callback and issubclass(etype, KeyboardInterrupt):
            self._callback_interrupted = True
            if self._errors_sent:
                return  # the cell had failed already
        self._refusal = self.guest.refusals.annotate(value)
        sent, interrupts = self._errors_sent, self.guest.interrupts
        hits = interrupts.hits
        try:
            self._show(etype, value, tb, exc_tuple, filename, tb_offset, exception_only, kwargs)
        except KeyboardInterrupt:  # IPython takes most of those itself
            pass
        if interrupts.hits != hits and self._errors_sent == sent:  # that there was an error is told in any case
            self._showtraceback(etype, value, brief_traceback(value))

    def _show(self, etype, value, tb, exc_tuple, filename, tb_offset, exception_only, kwargs):
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
        stb = [str(line) for line in stb]
        try:
            self.guest.output.flush_replaced()
        finally:  # also when that was interrupted
            self.guest.interrupts.shielded(self._send_error, etype.__name__, safe_str(evalue), stb, evalue)
        exceptions = getattr(self.history_manager, "exceptions", None)
        if exceptions is not None:
            exceptions[self.cell_number] = {"ename": etype.__name__, "evalue": safe_str(evalue), "traceback": stb}
        note, self._refusal = self._refusal, None
        self.guest.refusals.say_unless_shown(note, stb)

    def _send_error(self, ename, text, stb, error):
        """All of it or nothing, whatever interrupts."""
        self.guest.send_error(ename, text, stb)
        self._last_traceback, self._last_error = stb, error
        self._errors_sent += 1
        if self.displayhook.is_active:
            self._display_error = error

    def remember_output(self, kind, data):
        """For %notebook, where this IPython writes outputs too; up to a bound."""
        outputs = getattr(self.history_manager, "outputs", None)
        left = _OUTPUTS_MAX - self._outputs_kept
        if outputs is None or _HistoryOutput is None or left <= 0:
            return
        size = _memory_of(data, left)
        if size is None:
            return
        self._outputs_kept += size + _OUTPUT_BYTES
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
            return self._run(raw_cell, store_history, silent, shell_futures, cell_id, cell_meta)
        finally:
            self.cell_number, self.cell_text = before

    def _run(self, raw_cell, store_history, silent, shell_futures, cell_id, cell_meta):
        info = _make_info(raw_cell, store_history, silent, shell_futures, cell_id, cell_meta)
        result = ExecutionResult(info)
        try:
            if not raw_cell or raw_cell.isspace():
                return result
            number = self.execution_count
            within = number == self.cell_number  # the cell of that number runs it, if there is one
            self.cell_number = result.execution_count = number
            try:
                self._run_in_traps(raw_cell, store_history and not silent, silent, shell_futures, result, within)
            finally:
                if store_history and not silent:
                    self.execution_count = number + 1
        finally:
            self.last_execution_succeeded = result.success
            self.last_execution_result = result
            self._trigger("post_execute")
            if not silent:
                self._trigger("post_run_cell", result)
        return result

    def _trigger(self, event, *args):
        """IPython shows what a callback raises and goes on; an interrupt ends the cell."""
        self._in_callback, self._callback_interrupted = True, False
        try:
            self.events.trigger(event, *args)
        finally:
            self._in_callback = False
        if self._callback_interrupted:
            raise KeyboardInterrupt

    def _run_in_traps(self, raw_cell, store_history, silent, shell_futures, result, within):
        failure = None
        try:
            cell = self.transform_cell(raw_cell)
        except Exception:
            cell, failure = raw_cell, sys.exc_info()
        result.info.transformed_cell = cell
        self.cell_text = cell
        self._trigger("pre_execute")
        if not silent:
            self._trigger("pre_run_cell", result.info)
        if store_history and not ("get_ipython().run_line_magic(" in cell and "paste" in cell):
            self.history_manager.store_inputs(self.cell_number, cell, raw_cell, within)
        if not silent and self.logs():
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

    def logs(self):
        """Whether %logstart is on."""
        logger = self.__dict__.get("_logger") or self.__dict__.get("logger")
        return logger is not None and getattr(logger, "log_active", False)

    def _compile(self, *cell):
        """Code objects to run in order, or None after an error was shown."""
        try:
            return self._compile_once(*cell)
        except SystemError:  # another thread parsed at the same time (CPython's gh-106905, mended in 3.11.8 and 3.12.2)
            return self._compile_once(*cell)

    def _compile_once(self, cell, name, compiler, silent, result):
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
                    return self._compile_one_by_one(nodes, first, name, compiler)
            for node in nodes[first:]:
                codes.append(compiler(ast.Interactive([node]), name, "single"))
            return codes

    @staticmethod
    def _compile_one_by_one(nodes, first, name, compiler):
        """One statement is wrong by itself, as a lone `return`: what is before it runs, then its error shows. Or it is
        not where it belongs, as `from __future__` behind a magic."""
        codes = []
        for at, node in enumerate(nodes):
            try:
                if at < first:
                    codes.append(compiler(ast.Module([node], []), name, "exec"))
                else:
                    codes.append(compiler(ast.Interactive([node]), name, "single"))
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
                    return self._run_coroutine(code, codes, result)
                exec(code, namespace, local)
        except BaseException as e:
            self._show_failure(e, result)
        finally:
            if self.in_main_thread:
                sys.excepthook = excepthook

    def _run_coroutine(self, code, codes, result):
        """In the cells' loop of asyncio, or by what the user has put in its place (%autoawait trio)."""
        runner, aio = self.loop_runner, self.guest.aio
        if str(runner) == "asyncio":
            return aio.run_coroutine(self._run_awaiting, aio.awaiting, code, codes, result)
        return runner(self._run_awaiting(_itself, code, codes, result))

    async def _run_awaiting(self, awaiting, code, codes, result):
        __tracebackhide__ = "__ipython_bottom__"
        namespace, local = self.user_module.__dict__, self.user_ns
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
        BaseException.with_traceback(e, own_frames_off(e.__traceback__))  # whose class may let nobody set attributes
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
        self._in_callback = False
        self.value_wanted = metadata.get("value")
        cell_id = metadata.get("cell_id")
        meta = {"cellId": cell_id} if cell_id else {}
        try:
            result = guest.interrupts.run(
                guest.aio.run_plain,
                guest.output.flushing,
                self._run,
                content["code"],
                store,
                silent,
                True,
                cell_id,
                meta,
            )
            error = _first(result.error_before_exec, result.error_in_exec, self._display_error)
            shown = True  # by us, or by what the user has put in the place of showtraceback
        except BaseException as e:  # raised by a hook, or an interrupt before or after the cell's own code
            error, shown = e, self._errors_sent > 0
            if shown and isinstance(e, KeyboardInterrupt):
                error = self._last_error  # it had failed already
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
        if not shown:
            self._last_traceback = brief_traceback(error)
            guest.send_error(type(error).__name__, safe_str(error), self._last_traceback)
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

        session = environ.get("JPY_SESSION_NAME")
        if session:
            self.user_ns["__session__"] = self.user_ns_hidden["__session__"] = session
        run_startup(self, self.guest)
        if self.warm is None:
            self.warm = Warm(self, self.guest.wire.fd)

    def renew(self):
        """In a copy of a zygote. False: the home has a configuration, for which a shell is to be made anew."""
        from .profile import has_config

        if has_config():
            self.builtin_trap.__exit__(None, None, None)
            return False
        self.starting_dir = getcwd()
        self.history_manager.dir_hist[:] = self.history_manager._dir_hist_default()
        return True

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


def _make_info(raw_cell, store_history, silent, shell_futures, cell_id, cell_meta):
    try:
        info = ExecutionInfo(raw_cell, store_history, silent, shell_futures, cell_id)
    except TypeError:  # before 7.33, and 8.0 to 8.2
        info = ExecutionInfo(raw_cell, store_history, silent, shell_futures)
    if hasattr(info, "cell_meta"):  # in later IPythons
        info.cell_meta = cell_meta
    return info


def _memory_of(bundle, most):
    """About how many bytes a bundle takes, or some number above most; None where a value is none of JSON's, nor bytes:
    no notebook could hold it."""
    size, left = 0, [bundle]
    while left and size <= most:
        value = left.pop()
        size += _VALUE_BYTES
        if isinstance(value, (str, bytes)):
            size += len(value)
        elif isinstance(value, (dict, list, tuple)):
            size += 8 * len(value)
            if size <= most:  # else the list of what is left might take as much again
                left.extend(value.items() if isinstance(value, dict) else value)
        elif value is not None and not isinstance(value, (int, float)):
            return None
    return size


def _first(*errors):
    return next((error for error in errors if error is not None), None)


def _itself(value):
    return value


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

    if not hasattr(CachingCompiler, "get_code_name"):
        raise ImportError("IPython %s is older than %s" % (release.version, W.OLDEST_IPYTHON))
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
