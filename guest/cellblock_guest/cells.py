"""Short cuts for plain cells, each taken only where IPython's own way would give the same.

untouched(): a cell without any of IPython's syntax needs no transformation. is_one_statement(): a single simple
statement compiles in one go. plain_text(): a number or string has no representation but its repr.
"""

import linecache
import re
from builtins import __dict__ as _builtins
from keyword import kwlist

# Characters and words at which IPython's transformers look; anything of these takes the long way.
_SPECIAL = re.compile(r"[%!?]|^\s*[/,;]|>>>|\.\.\.|In \[", re.MULTILINE)
_FIRST_WORD = re.compile(r"([A-Za-z_]\w*)\s*(.?)")
_COMPOUND = re.compile(r"[;:@\\#\n'\"]")
_KEYWORDS = frozenset(kwlist) | {"match", "case", "type", "print"}
_PRINTERS = ("IPython.lib.pretty", "IPython.core.formatters")


class CellSource:
    def __init__(self, shell):
        self._shell = shell
        manager, prefilter = shell.input_transformer_manager, shell.prefilter_manager
        self._manager, self._prefilter = manager, prefilter
        self._pristine = self._state()
        self._formatters = None

    def _state(self):
        manager, prefilter = self._manager, self._prefilter
        return (
            manager.cleanup_transforms[:],
            manager.line_transforms[:],
            manager.token_transformers[:],
            prefilter._checkers[:],
            prefilter._transformers[:],
            prefilter._handlers.copy(),
        )

    def _unchanged(self):
        manager, prefilter, old = self._manager, self._prefilter, self._pristine
        return (
            manager.cleanup_transforms == old[0]
            and manager.line_transforms == old[1]
            and manager.token_transformers == old[2]
            and prefilter._checkers == old[3]
            and prefilter._transformers == old[4]
            and prefilter._handlers == old[5]
        )

    def untouched(self, cell):
        """The cell as IPython's transformers would return it if they change nothing; None = they have to be asked."""
        shell = self._shell
        if not cell or cell[0] in " \t\n\r\f" or _SPECIAL.search(cell) or not self._unchanged():
            return None
        if shell.input_transformers_post or shell.autocall or shell.input_transformer_manager is not self._manager:
            return None
        text = cell.rstrip("\n")
        if len(text.splitlines()) == 1:
            return text + "\n" if self._is_plain_line(text) else None
        return cell if cell.endswith("\n") else cell + "\n"

    def _is_plain_line(self, line):
        """False if the first word could be a magic, a macro or an autocall object."""
        match = _FIRST_WORD.match(line)
        if match is None:
            return True
        word, following = match.groups()
        namespace = self._shell.user_ns
        if word in namespace:
            return type(namespace[word]).__module__ not in ("IPython.core.macro", "IPython.core.autocall")
        if word in _KEYWORDS or word in _builtins:
            return True
        return following == "=" or not self._shell.automagic or self._shell.find_magic(word) is None

    @staticmethod
    def is_one_statement(cell):
        """True only for one simple statement: compiled whole, it shows its value exactly if it is an expression."""
        if len(cell) >= 200 or cell[-1:] != "\n" or "__future__" in cell:  # later cells have that, too
            return False
        return _COMPOUND.search(cell, 0, len(cell) - 1) is None

    def plain_text(self, value):
        kind = type(value)
        if kind not in (int, float, str, bool, complex):
            return None
        if self._formatters is None:
            self._formatters = _Formatters(self._shell.display_formatter)
        if not self._formatters.untouched(kind):
            return None
        try:
            return repr(value)
        except ValueError:  # an integer of more digits than Python shows: the formatters say so
            return None


class _Formatters:
    """Whether IPython's formatters would do nothing for a type but repr it. Cells may have changed them before the
    first look: only what is IPython's own counts as untouched."""

    def __init__(self, display_formatter):
        self._formatters = display_formatter.formatters
        self._seen = list(self._formatters.values())
        self._plain = self._formatters["text/plain"]
        others = [f for f in self._seen if f is not self._plain]
        others += [display_formatter.ipython_display_formatter, display_formatter.mimebundle_formatter]
        self._own = all(type(f).__module__ == "IPython.core.formatters" for f in [self._plain, *others])
        self._types = [f.type_printers for f in others]
        self._singletons = [f.singleton_printers for f in others]

    def untouched(self, kind):
        plain = self._plain
        if not self._own or list(self._formatters.values()) != self._seen or not plain.enabled:
            return False  # a library, such as rich, has put its own in their place
        printer = plain.type_printers.get(kind)
        if printer is not None and getattr(printer, "__module__", None) not in _PRINTERS:
            return False
        if ("builtins", kind.__name__) in plain.deferred_printers:
            return False
        if kind is float and plain.float_format not in ("%r", ""):
            return False
        for table in self._types:
            if table and (kind in table or object in table or int in table):
                return False
        return not any(self._singletons)


def ends_with_semicolon(code):
    if ";" not in code:
        return False
    import io
    import tokenize as t

    no_code, last = (t.NL, t.NEWLINE, t.COMMENT, t.INDENT, t.DEDENT, t.ENDMARKER), ""
    try:
        for token in t.generate_tokens(io.StringIO(code).readline):
            if token.type not in no_code:
                last = token.string
    except (t.TokenError, SyntaxError):
        pass
    return last == ";"


def count_lines_of_cells(ultratb):
    """IPython opens a frame's file to count its lines; a cell has none, and would be treated as a huge file: with the
    frame's last line in the place of the failing one."""
    count = getattr(ultratb, "get_line_number_of_frame", None)
    if count is None:
        return

    def get_line_number_of_frame(frame):
        entry = linecache.cache.get(frame.f_code.co_filename)
        if entry and len(entry) == 4 and entry[1] is None:
            return len(entry[2])
        return count(frame)

    ultratb.get_line_number_of_frame = get_line_number_of_frame
