"""imports.allow: what cells import is held to the list, what modules and C code import is not."""

import json
import re

import pytest

ALLOWED = ["json", "time", "datetime", "xml.etree.*", "concurrent.futures", "importlib"]
REFUSED = ["os", "xml.dom", "json.decoder", "concurrent.futures.thread", "osx"]
WAYS = {
    "a statement": "import os",
    "with a name": "import os as x",
    "from": "from os import path",
    "in a function": "def f():\n    import os\nf()",
    "in a class": "class A:\n    import os",
    "by exec": "exec('import os')",
    "by __import__": "__import__('os')",
    "on a thread": "import concurrent.futures as c\nc.ThreadPoolExecutor().submit(lambda: __import__('os')).result()",
    "by a callback": "import json; json.loads('1', parse_int=lambda _: __import__('os'))",
}


@pytest.fixture
def guest(new_guest):
    return new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps({"imports.allow": ALLOWED})})


def refused(result, name):
    assert result.error, result
    words = "Import of %s is not allowed. Authorized imports are: %s (the policy's imports.allow)" % (name, ALLOWED)
    assert (result.error["ename"], result.error["evalue"]) == ("ImportError", words)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.error["traceback"]))
    assert "allowed_imports.py" not in shown, shown
    return True


def test_each_way(guest):
    for way, code in WAYS.items():
        assert refused(guest.run(code), "os"), way


def test_names(guest):
    for name in REFUSED:
        assert refused(guest.run("import " + name), name)
    for name in ("json", "xml", "xml.etree", "xml.etree.ElementTree", "concurrent", "concurrent.futures"):
        assert guest.run("import %s\nfrom %s import *" % (name, name)).error is None, name


def test_what_modules_and_c_code_import_is_theirs(guest):
    """strptime imports _strptime in the name of the cell that called it."""
    for code in (
        "import time; time.strptime('2', '%d')",
        "import datetime; datetime.datetime.strptime('2', '%d')",
        "import importlib; importlib.import_module('zipfile')",
    ):
        assert guest.run(code).error is None, code
    assert guest.run("import json; json.dumps(1)").error is None


def test_everything(new_guest):
    for names in (["*"], []):
        guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps({"imports.allow": names})})
        assert guest.run("import xml.dom.minidom, os").error is None


def test_no_frame_of_ours_in_the_middle(new_guest, tmp_path):
    (tmp_path / "broken.py").write_text("import zipfile\n1 / 0\n")
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps({"imports.allow": ["broken"]})}, cwd=str(tmp_path))
    error = guest.run("import broken").error
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))
    assert error["ename"] == "ZeroDivisionError" and "broken.py" in shown and "allowed_imports" not in shown, shown
