"""smolagents' agents at their worst: what its guide to secure execution warns of, tried by whole agents in our
executor. Each time the agent's next step is answered, with the variables from before."""

import os
import re

import pytest

smolagents = pytest.importorskip("smolagents", reason="smolagents needs Python 3.11 here")

import kernels  # noqa: E402
from agentscripts import Scripted  # noqa: E402
from cellblock.smolagents import code_agent  # noqa: E402
from smolagents import Tool  # noqa: E402

KEY = "sk-90210-of-the-tool"


class Counter(Tool):
    """A tool with state and a key, neither of which can be sent anywhere as source."""

    name, description, output_type = "count", "Counts its calls.", "integer"
    inputs = {"by": {"type": "integer", "description": "how far", "nullable": True}}

    def __init__(self, key):
        super().__init__()
        self.key, self.count, self.lock = key, 0, open(os.devnull)

    def forward(self, by: int = 1) -> int:
        assert self.key == KEY
        self.count += by
        return self.count


@pytest.fixture
def run(nothing_left, request):
    """run(*codes): an agent's answer, and what its model read before each of its steps but the first."""
    folder = nothing_left / re.sub(r"\W+", "-", request.node.name)
    kernels.let_in(folder)
    made = []

    def run(*codes, tools=(), imports=(), given=None, **executor):
        model = Scripted(*codes)
        made.append(code_agent(list(tools), model, additional_authorized_imports=list(imports), verbosity_level=0,
                               executor={"workspace": folder, **executor}))
        answer = made[-1].run("go", additional_args=given)
        return answer, [str(messages[-1].content) for messages in model.heard[1:]]

    run.folder, run.agents = folder, made
    yield run
    for agent in made:
        agent.cleanup()


def test_a_tool_with_state_and_a_key(run):
    counter = Counter(KEY)
    answer, heard = run("print(count(), count(by=3))", "final_answer(count() + extra)", tools=[counter],
                        given={"extra": 100})
    assert answer == 105 and counter.count == 5 and "1 4" in heard[0]


SEEK = f"""
import gc, os, pathlib, sys
found = []
def look(where, what):
    if {KEY[:8]!r} in str(what): found.append(where)
look("environment", dict(os.environ))
look("variables", {{k: v for k, v in globals().items() if k not in ("found", "In") and not k.startswith("_")}})
for o in gc.get_objects():
    if isinstance(o, dict) and len(o) < 50:
        try: values = [v for v in o.values() if isinstance(v, str)]
        except Exception: continue
        if any(v == {KEY[:8]!r} + {KEY[8:]!r} for v in values): found.append("objects")
for folder in (".", "/tmp", "/workspace", "/home", "/proc/self", "/proc/1", "/run", "/root"):
    for root, dirs, files in os.walk(folder):
        if root.count("/") > 4 or root.startswith("/proc/") and root.count("/") > 2: dirs[:] = []
        dirs[:] = [d for d in dirs if d != "site-packages"]  # of the environment: much, and the host's own
        for name in files:
            try:
                waits_not = lambda path, flags: os.open(path, flags | os.O_NONBLOCK)  # /proc/self/fd has pipes
                with open(os.path.join(root, name), "rb", opener=waits_not) as f: text = f.read(200_000) or b""
            except OSError: continue
            if ({KEY[:8]!r} + {KEY[8:]!r}).encode() in text: found.append(os.path.join(root, name))
sorted(set(found))
"""


def test_the_key_is_nowhere_inside(run, monkeypatch):
    """It is in this program's environment, in a tool and in a file beside the workspace. A planted one is found."""
    monkeypatch.setenv("MODEL_API_KEY", KEY)
    (run.folder.parent / "beside.txt").write_text(KEY)
    joined = f"{KEY[:8]!r} + {KEY[8:]!r}"
    plants = ["import os\nos.environ['PLANTED'] = " + joined,
              f"keeper = [{{'key': {joined}, 'more': []}}]",
              f"open('planted.txt', 'w').write({joined})"]
    codes = ["count()", SEEK, *plants, SEEK, "final_answer(sorted(set(found)))"]
    answer, heard = run(*codes, tools=[Counter(KEY)], imports=["*"], timeout=250)
    assert "[]" in heard[1], heard[1]
    assert {"environment", "objects", "./planted.txt"} <= set(answer)


@pytest.mark.parametrize("name, code, says", [
    ("loop", "kept.append(2)\nwhile True: pass", "CellTimeoutError"),
    ("memory", "hog = []\nwhile True: hog.append(bytearray(1 << 24))", "MemoryError"),
    ("exit", "import os\nos._exit(1)", "KernelDiedError"),
    ("crash", "import ctypes\nctypes.string_at(0)", "KernelDiedError"),
    ("recursion", "def f(): return f()\nf()", "RecursionError"),
    ("forks", "import os\nwhile True: os.fork()", "Error"),
    ("import", "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)", "Error"),
])
def test_what_a_step_breaks(run, name, code, says):
    steps = ["kept = [1]", code, "final_answer(kept[0])"]
    endless = name in ("loop", "forks")
    room = "1G" if name == "forks" else "256M"  # a hundred Pythons that say what failed them have about 256 MB of own
    answer, heard = run(*steps, imports=["*"], timeout=10 if endless else 60, memory=room)
    assert answer == 1 and says in heard[1], heard


def test_an_import_that_is_not_allowed(run):
    answer, heard = run("import subprocess", "from os import path", "final_answer('none')", imports=["numpy"])
    assert answer == "none" and "Import of subprocess is not allowed" in heard[0]
    assert "Import of os" in heard[1] or "Import from os" in heard[1]


def test_a_disk_full_of_pictures(run):
    """Pillow writes until no more fits: the layer over the workspace and /tmp have ends; the folder gets nothing."""
    pytest.importorskip("PIL.Image")
    code = """
from PIL import Image
image, n = Image.effect_noise((1500, 1500), 90), 0
try:
    while True:
        image.save(f"{where}/{n}.bmp")
        n += 1
except OSError as e:
    print("stopped", e.errno)
n"""
    codes = [f"where = '.'\n{code}", f"where = '/tmp'\n{code}", "final_answer(n)"]
    answer, heard = run(*codes, imports=["*"], timeout=110, policy={
        "workspace.size": "32M", "limits.tmp": "16M"})
    assert "stopped 28" in heard[0] and "stopped 28" in heard[1] and 0 < answer < 20
    assert not list(run.folder.iterdir())


def test_a_flood_of_words(run):
    answer, heard = run("for i in range(200_000): print('word', i)", "final_answer('read')", timeout=60)
    assert answer == "read" and len(heard[0]) < 60_000


def test_final_answers_as_an_agent_gives_them(run):
    """Texts and pictures come as smolagents' own kinds, sound as the bytes of a file, the rest as it was."""
    image = pytest.importorskip("PIL.Image")
    wave = "RIFF$\\x00\\x00\\x00WAVEfmt "
    for code, kind, value in (
        ("'text'", str, "text"), ("b'" + wave + "'", bytes, b"RIFF$\x00\x00\x00WAVEfmt "),
        ("{'a': [1, (2,)]}", dict, {"a": [1, (2,)]}), ("3.5", float, 3.5), ("True", bool, True),
        ("None", type(None), None), ("{1, 2}", set, {1, 2}),
    ):
        answer, _ = run(f"final_answer({code})")
        assert isinstance(answer, kind) and answer == value, code
    answer, _ = run("from PIL import Image\nfinal_answer(Image.new('RGB', (7, 5), (1, 2, 3)))", imports=["PIL.*"])
    raw = answer.to_raw()
    assert isinstance(answer, image.Image) and raw.size == (7, 5) and raw.getpixel((6, 4)) == (1, 2, 3)
