"""The bundle of compiled modules: used only for what it was made of, and nothing shows that it was."""

import json
import os
import re
import shutil
import subprocess

import pytest
from fake_supervisor import ROOT

MAKE = """
import sys
sys.path.insert(0, sys.argv[1])
from cellblock_guest import bundle
with open(sys.argv[2], "wb") as f:
    f.write(bundle.make())
"""

USE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.path += sys.argv[3:]
from cellblock_guest import bundle
found, taken = bundle.open_bundle(sys.argv[2]), []
if found:
    find = found.find_spec
    def find_spec(*args):
        spec = find(*args)
        if spec:
            taken.append(args[0])
        return spec
    found.find_spec = find_spec
before = list(sys.meta_path)
from cellblock_guest import main
try:
    from cellblock_guest import shell
except ImportError:
    from cellblock_guest import plain
if found:
    found.close()
assert not [each for each in sys.meta_path if isinstance(each, bundle.Bundle)]
import importlib, importlib.util, inspect, json
from importlib.machinery import SourceFileLoader
for module in (main, json, json.decoder):
    assert type(module.__loader__) is type(module.__spec__.loader) is SourceFileLoader, module
    assert module.__cached__ == module.__spec__.cached == importlib.util.cache_from_source(module.__file__)
    assert inspect.getsource(module) and module.__spec__.has_location
assert list(json.__path__) == json.__spec__.submodule_search_locations
assert importlib.reload(json.decoder).__spec__.origin == json.decoder.__file__
print(json.dumps(taken))
"""


def test_what_compiles_the_guest_takes_what_newer_pythons_give():
    """Python 3.15 gives the module's name behind the path."""
    source = (ROOT / "kernel/setup/guest_cache.c").read_text()
    lines = re.findall(r'^\t"(.*)\\n"', source, re.M)
    first = lines.index("compiled, compile_it = {}, SourceLoader.source_to_code")
    lines = lines[first : lines.index("SourceLoader.source_to_code = once") + 1]

    class SourceLoader:
        def source_to_code(self, data, path, fullname=None, *, _optimize=-1):
            return data, path, fullname, _optimize

    exec("\n".join(lines), {"SourceLoader": SourceLoader})
    loader = SourceLoader()
    assert loader.source_to_code(b"1", "a.py") == (b"1", "a.py", None, -1)
    assert loader.source_to_code(b"2", "b.py", "b", _optimize=1) == (b"2", "b.py", "b", 1)


@pytest.fixture
def files(interpreter, guest_dir, tmp_path):
    """A copy of the guest, and its bundle made by the interpreter."""
    guest = tmp_path / "guest"
    shutil.copytree(guest_dir, guest)
    python(interpreter, MAKE, guest, tmp_path / "bundle.pyc")
    return interpreter, guest, tmp_path / "bundle.pyc"


def python(interpreter, script, *args):
    command = [interpreter.path, "-I", "-B", "-c", script, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_of_a_start_comes_from_it(files):
    taken = json.loads(python(files[0], USE, *files[1:]))
    assert "cellblock_guest.main" in taken and "json" in taken
    assert not files[0].ipython or "IPython.core.interactiveshell" in taken
    assert len(taken) > (100 if files[0].ipython else 20), taken


def test_a_source_that_has_changed_is_found_as_ever(files):
    source = files[1] / "cellblock_guest" / "jsontext.py"
    os.utime(source, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns + 1000))
    (files[1] / "cellblock_guest" / "prompt.py").open("a").write("\n")
    taken = json.loads(python(files[0], USE, *files[1:]))
    assert "cellblock_guest.main" in taken
    assert "cellblock_guest.jsontext" not in taken and "cellblock_guest.prompt" not in taken


def test_another_search_path_or_none_at_all(files, tmp_path):
    assert json.loads(python(files[0], USE, *files[1:], tmp_path)) == []
    assert json.loads(python(files[0], USE, files[1], tmp_path / "absent")) == []
    whole = files[2].read_bytes()
    for broken in (b"", whole[:100], b"x" * 100, whole[:16] + b"\xff" * 50000):
        files[2].write_bytes(broken)
        assert json.loads(python(files[0], USE, *files[1:])) == []
