"""execute_request.metadata.cellblock: the value as data, variables of the environment (docs/messages.md)."""

import base64

import pytest

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
MIME = "application/vnd.cellblock.value+json"


def value_of(client, code, **how):
    done = client.run(code, metadata={"cellblock": {"value": True}}, **how)
    assert done.ok, done
    (shown,) = done.of("execute_result")
    return shown.content["data"].get(MIME)


VALUES = {
    "1": 1,
    "True": True,
    "1.5": 1.5,
    "'é'": "é",
    "(1, [2, {'a': None}])": [1, [2, {"a": None}]],
    "{1: 2, None: 3}": {"1": 2, "null": 3},
    "10**100": 10**100,
    "class L(list): pass\nL([1])": [1],
    "import collections\ncollections.OrderedDict(a=1)": {"a": 1},
}


@pytest.mark.parametrize("code", VALUES)
def test_json(client, code):
    assert value_of(client, code) == {"json": VALUES[code]}


@pytest.mark.parametrize("code", ["b'\\0x'", "bytearray(b'\\0x')", "memoryview(b'\\0x')"])
def test_bytes(client, code):
    assert value_of(client, code) == {"bytes": base64.b64encode(b"\0x").decode()}


NONE = [
    "float('nan')",
    "[1, float('inf')]",
    "{1}",
    "object()",
    "[object()]",
    "1j",
    "{1: 2, '1': 3}",
    "'\\ud800'",
    "a = []\na.append(a)\na",
    "class Quiet(list):\n    def __repr__(self): return 'quiet'\na = []\nfor i in range(500): a = Quiet([a])\na",
    "class Bad(list):\n    def __iter__(self): 1/0\n    def __repr__(self): return 'bad'\nclass D(dict):\n"
    "    def items(self): 1/0\n    def __repr__(self): return 'd'\n[D(a=1)]",
]


@pytest.mark.parametrize("code", NONE)
def test_what_is_none_of_them(client, code):
    assert value_of(client, code) is None




def test_numpy(client):
    if client.run("import numpy as np").content["status"] != "ok":
        pytest.skip("no numpy here")
    data = base64.b64encode(b"\x01\0\x03\0\x02\0\x04\0").decode()
    found = value_of(client, "np.array([[1, 2], [3, 4]], '<i2').T")
    assert found == {"array": {"dtype": "<i2", "shape": [2, 2], "data": data}}
    assert value_of(client, "np.float64(1.5)") == {"json": 1.5}
    assert value_of(client, "np.int64(3)") == {"json": 3}
    assert value_of(client, "[np.int64(3)]") == {"json": [3]}
    assert value_of(client, "np.array([object()])") is None
    assert value_of(client, "np.array([1+2j])")["array"]["dtype"] == "<c16"


def test_only_if_it_is_asked_for(client):
    for metadata in ({}, {"cellblock": {}}, {"cellblock": {"value": False}}):
        (shown,) = client.run("5", metadata=metadata).of("execute_result")
        assert shown.content["data"] == {"text/plain": "5"}


def test_beside_what_is_shown(client):
    code = "class T(str):\n    def _repr_html_(self): return '<b>'\nT('x')"
    done = client.run(code, metadata={"cellblock": {"value": True}})
    data = done.of("execute_result")[0].content["data"]
    assert data[MIME] == {"json": "x"} and data["text/html"] == "<b>" and data["text/plain"] == "'x'"


def test_in_a_subshell(client):
    where = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert value_of(client, "[5]", header=client.header("execute_request", subshell_id=where)) == {"json": [5]}
    client.request("delete_subshell_request", {"subshell_id": where}, channel="control")


def test_what_is_too_large_comes_without(start):
    kernel = start(args=["--set", "limits.message=1M"])
    assert value_of(kernel.client, "'x' * 600_000") is None
    assert value_of(kernel.client, "'x' * 100_000") == {"json": "x" * 100_000}


@pytest.mark.parametrize(
    "wrong, names",
    [({"value": 1}, "value"), ({"env": []}, "env"), ({"env": {"A": 1}}, "env"), ({"env": {"A": None}}, "env")],
    ids=str,
)
def test_a_wrong_type(client, wrong, names):
    reply = client.run("1", metadata={"cellblock": wrong})
    assert reply.content["ename"] == "MalformedRequestError" and names in reply.content["evalue"]


def test_variables_during_the_cell(client):
    assert client.run("import os\nos.environ['KEPT'] = 'mine'\nos.environ.pop('A', None)").ok
    env = {"A": "1", "KEPT": "other", "EMPTY": ""}
    done = client.run(
        "print(os.environ['A'], os.environ['KEPT'], os.environ['EMPTY'] == '')\n!echo $A $KEPT\n"
        "os.environ['A'] = os.environ['NEW'] = '2'; del os.environ['KEPT']",
        metadata={"cellblock": {"env": env}},
    )
    assert done.text() == "1 other True\n1 other\n", done
    after = client.run("os.environ.get('A'), os.environ.get('KEPT'), os.environ.get('EMPTY'), os.environ.pop('NEW')")
    assert after.result == "(None, 'mine', None, '2')"


def test_after_a_cell_that_failed(client):
    assert client.run("1/0", metadata={"cellblock": {"env": {"A": "1"}}}).content["ename"] == "ZeroDivisionError"
    assert client.run("import os\nprint(os.environ.get('A'))").text() == "None\n"


@pytest.mark.parametrize("name", ["A=B", "", "A\0"])
def test_a_name_that_none_may_have(client, name):
    done = client.run("print('ran')", metadata={"cellblock": {"env": {"GOOD": "1", name: "2"}}})
    assert done.content["status"] == "error" and done.text() == "", done
    assert client.run("import os\nprint(os.environ.get('GOOD'))").text() == "None\n"


def test_variables_in_a_subshell(client):
    where = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    header = client.header("execute_request", subshell_id=where)
    done = client.run("import os\nprint(os.environ['A'])", header=header, metadata={"cellblock": {"env": {"A": "1"}}})
    assert done.text() == "1\n"
    assert client.run("print(os.environ.get('A'))").text() == "None\n"
