"""What user code expects around it: environment variables, sys.path, and the list of search-path entries that are
missing."""

import os
import sys
import time

# Colours and pagers as under ipykernel; only what is unset, so that a policy's env.set wins.
_DEFAULTS = {
    "TERM": "xterm-color",
    "CLICOLOR": "1",
    "FORCE_COLOR": "1",
    "CLICOLOR_FORCE": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}

packages_refused = False  # set at the start
_SITES = ("site-packages", "dist-packages")
_read = {}  # read_sites()
_late_sites = []  # find_late_paths()


def prepare(ipython):
    for name, value in _DEFAULTS.items():
        if name == "MPLBACKEND" and not ipython:
            value = "agg"  # the inline backend needs IPython
        os.environ.setdefault(name, value)
    if not os.access(os.environ.get("SHELL", "/bin/sh"), os.X_OK):
        os.environ.pop("SHELL", None)  # IPython would run every `x = !command` with it
    if os.environ["TERM"] in ("", "dumb"):
        os.environ["TERM"] = _DEFAULTS["TERM"]


def prepare_packages():
    """pip as the policy's packages.mode wants it. True: installing is refused.

    A system's interpreter has no prefix of its own to install into: there pip takes the home, which is gone at the end
    as well, so what PEP 668 guards is not touched. The folder must be on the search path before it has anything in it.
    """
    mode = os.environ.pop("CELLBLOCK_PACKAGES", None)
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    if mode == "ro":
        os.environ.setdefault("PIP_USER", "0")
        return True
    os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    import site

    if mode == "session" and site.ENABLE_USER_SITE and not os.access(sys.prefix, os.W_OK):
        folder = site.getusersitepackages()
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return False
        if folder not in sys.path:
            sys.path.insert(_first_site(), folder)
    return False


def give_fonts(matplotlib):
    """matplotlib was imported: it finds the list of fonts that was made at installation."""
    _give("fontlist-", "fontlist-", matplotlib.get_cachedir)


def give_trees(settings):
    """jedi was imported: it finds what it would have to read of Python's own types."""
    from parso.cache import _VERSION_TAG as version

    _give("trees-%s-" % version, "", lambda: os.path.join(settings.cache_directory, version))


def _give(kind, prefix, folder):
    """Copies what lies ready beside our compiled modules, named `kind…`, into a library's own cache. Files keep their
    age: what has changed since is read anew."""
    prepared = os.path.join(os.path.dirname(__file__), "__pycache__")
    try:
        names = [name for name in os.listdir(prepared) if name.startswith(kind)]
        cache = folder() if names else None
        for name in names:
            source, target = os.path.join(prepared, name), os.path.join(cache, prefix + name[len(kind) :])
            if not os.path.exists(target):
                os.makedirs(cache, exist_ok=True)
                with open(source, "rb") as original, open(target + "~", "wb") as copy:
                    copy.write(original.read())
                os.utime(target + "~", (time.time(), os.stat(source).st_mtime))
                os.replace(target + "~", target)
    except Exception:
        pass  # the library makes it itself


def give_again():
    """In a copy of a zygote: libraries that were loaded there find in this home what they found in that one."""
    for name, give in ("matplotlib", give_fonts), ("jedi.settings", give_trees):
        if name in sys.modules:
            give(sys.modules[name])


def find_late_paths():
    """In a copy of a zygote: what site.py would have put on the search path, and was not there for the zygote."""
    import site

    folder = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    if folder and folder not in sys.path and os.path.isdir(folder):
        sys.path.insert(_first_site(), folder)
        _late_sites.append(folder)
    for entry in [entry for entry in sys.path if entry.endswith(_SITES)]:
        found = [os.path.abspath(path) for path, of_pth in _named_in(entry) if of_pth and os.path.exists(path)]
        at = sys.path.index(entry) + 1 if entry == folder else len(sys.path)
        sys.path[at:at] = [path for path in found if path not in sys.path]


def run_late_sites():
    """In a copy of a zygote: lines of .pth files that are code, as site.py runs them (editable installs, say). They may
    wait, so all of the process is back by then; and print, where the supervisor takes no text yet but from fds 1 and 2.
    """
    import site

    streams = sys.stdout, sys.stderr
    for folder in _late_sites:
        raw = [open(fd, "w", 1, errors="backslashreplace", closefd=False) for fd in (1, 2)]
        sys.stdout, sys.stderr = raw
        try:
            site.addsitedir(folder)
        finally:
            sys.stdout, sys.stderr = streams
            for each in raw:
                each.flush()


def _first_site():
    found = [i for i, p in enumerate(sys.path) if p.endswith(_SITES)]
    return found[0] if found else len(sys.path)


def missing_paths():
    """Entries that .pth files and editable installs name and that do not exist here. Text only: nothing is run."""
    missing = []
    for entry in sys.path:
        if entry.endswith(_SITES):
            missing += [path for path, _ in _named_in(entry) if not os.path.exists(path)]
        elif entry and not entry.endswith(".zip") and not os.path.exists(entry):
            missing.append(entry)
    return sorted(set(missing))[:100]


def read_sites():
    """In a zygote: what the folders of packages name is the same in each copy of it, but not whether it exists."""
    for entry in sys.path:
        if entry.endswith(_SITES):
            _read[entry] = _named_in(entry)


def _named_in(site):
    """(path, whether it is a .pth file's) for each."""
    if site in _read:
        return _read[site]
    try:
        names = os.listdir(site)
    except OSError:
        return []
    named = []
    for name in names:
        if name.endswith(".pth"):
            for line in _lines(os.path.join(site, name)):
                if line and not line.startswith(("#", "import ", "import\t")):
                    named.append((os.path.join(site, line), True))
        elif name.startswith("__editable__") and name.endswith("_finder.py"):
            for line in _lines(os.path.join(site, name)):
                if line.startswith("MAPPING"):
                    named += [(path, False) for path in _mapped(line)]
    return named


def _lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return [line.strip() for line in f.read(1 << 20).splitlines()]
    except OSError:
        return []


def _mapped(line):
    import ast

    try:
        mapping = ast.literal_eval(line.partition("=")[2].strip())
        return [str(path) for path in mapping.values()]
    except (ValueError, SyntaxError, AttributeError):
        return []
