"""What the shell is made of: compiler, session database, history, display hook and display publisher.

Imported by shell.py only, after IPython's own modules.
"""

import builtins
import os
from fnmatch import fnmatchcase

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.history import HistoryManager

from .cells import ends_with_semicolon
from .tracebacks import cell_file_name

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

    def __setitem__(self, key, value):
        """A copy, as it would be in a file: what becomes of the value later is not kept."""
        if not isinstance(value, _ModuleCache):
            import pickle

            value = pickle.loads(pickle.dumps(value))
        super().__setitem__(key, value)

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

    def store_inputs(self, line_num, source, source_raw=None, within=False):
        """within: if there is a cell of that number it runs this one, and In, which has a place for each, keeps it."""
        source_raw = source if source_raw is None else source_raw
        source, source_raw = source.rstrip("\n"), source_raw.rstrip("\n")
        if self._exit_re.match(source_raw.strip()):
            return
        raw = self.input_hist_raw
        parsed = self.input_hist_parsed
        while len(raw) < line_num:  # numbers that ran in an earlier guest of this kernel
            raw.append("")
            parsed.append("")
        within = within and line_num < len(raw) and raw[line_num]
        if line_num < len(raw) and not within:  # a subshell's, which began after a later one of another shell
            parsed[line_num], raw[line_num] = source, source_raw
            return
        if not within:
            parsed.append(source)
            raw.append(source_raw)
        self._iii, self._ii, self._i, self._i00 = self._ii, self._i, self._i00, source_raw
        variables = {"_i": self._i, "_ii": self._ii, "_iii": self._iii, "_i%d" % line_num: raw[line_num]}
        self.shell.user_ns.update(variables)
        self.shell.user_ns_hidden.update(variables)

    def _rows(self, raw, output):
        lines = self.input_hist_raw if raw else self.input_hist_parsed
        for number, line in enumerate(lines):
            if number and line:
                shown = (line, self.output_hist_reprs.get(number)) if output else line
                yield self.session_number or 0, number, shown

    def get_tail(self, n=10, raw=True, output=False, include_latest=False):
        """`%history -l`, of this session: a cell sees no other."""
        rows = list(self._rows(raw, output))
        return (rows if include_latest else rows[:-1])[-n:]

    def search(self, pattern="*", raw=True, search_raw=True, output=False, n=None, unique=False):
        """`%history -g` and `%recall`, of this session."""
        searched = {number: line for _, number, line in self._rows(search_raw, False)}
        rows = [row for row in self._rows(raw, output) if fnmatchcase(searched.get(row[1], ""), pattern)]
        if unique:
            rows = list({row[2]: row for row in rows}.values())
        return rows[-n:] if n else rows

    def store_output(self, line_num):
        pass

    def writeout_cache(self, conn=None):
        pass

    def end_session(self):
        pass


class _Hooks:
    """Functions of a thread's: each is given what the thread's cells are about to send, and gives it, or None."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._hook_lists = {}  # thread -> functions

    def _hooks(self):
        from _thread import get_ident

        return self._hook_lists.setdefault(get_ident(), [])

    def register_hook(self, hook):
        self._hooks().append(hook)

    def unregister_hook(self, hook):
        try:
            self._hooks().remove(hook)
            return True
        except ValueError:
            return False

    def _after_hooks(self, msg_type, content):
        """What is left to be sent; None: nothing."""
        message = {
            "header": {"msg_type": msg_type},
            "msg_type": msg_type,
            "content": content,
            "parent_header": self.shell.guest.kernel.get_parent().get("header", {}),
            "metadata": {},
        }
        for hook in self._hooks():
            message = hook(message)
            if message is None:
                return None
        return message["content"]


class WireDisplayHook(_Hooks, DisplayHook):
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
                self._send(data, metadata, result)
                shell.remember_output("execute_result", data)
                shell.history_manager.output_hist_reprs[shell.cell_number] = data.get("text/plain", "")
                if shell.logs():
                    shell.logger.log_write(data.get("text/plain"), "output")  # it knows whether it is to
        finally:
            self._is_active = False

    def _send(self, data, metadata, value):
        shell = self.shell
        if self._hook_lists:
            content = {"data": data, "metadata": metadata, "execution_count": shell.cell_number}
            content = self._after_hooks("execute_result", content)
            if content is None:
                return
            data, metadata = content["data"], content["metadata"]
        shell.guest.send_result(shell.guest.with_value(data, value) if shell.value_wanted else data, metadata)

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


class WireDisplayPublisher(_Hooks, DisplayPublisher):
    topic = b"display_data"

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_ignored):
        self._validate_data(data, metadata)
        content = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        self._send("update_display_data" if update else "display_data", content)
        if not update:
            self.shell.remember_output("display_data", data)

    def clear_output(self, wait=False):
        self._send("clear_output", {"wait": bool(wait)})

    def _send(self, msg_type, content):
        if self._hook_lists:
            content = self._after_hooks(msg_type, content)
            if content is None:
                return
        self.shell.guest.send_display(msg_type, content)

    def set_parent(self, parent):
        pass
