"""A secret that a host tool uses is not found inside: not in memory, environment, /proc, files or outputs.

The search is shown to work first: planted inside on purpose, the secret is found by it in each of these places.
"""

import base64
import os

import pytest

pytest.importorskip("msgspec")
from cellblock import Sandbox, tool  # noqa: E402

TMPFS = {"policy": {"workspace.mode": "tmpfs"}}
# Runs inside. It gets the secret in a form that it does not find itself: xored bytes.
SEARCH = """
def hunt(hidden):
    import os, pathlib
    size = len(hidden)
    # behind these each is compared byte by byte with the hidden form, so that the needle itself never lies in memory
    first = bytes(b ^ 0x5a for b in hidden[:4])
    def within(data):
        at = data.find(first)
        while at >= 0:
            if len(data) >= at + size and all(data[at + n] == hidden[n] ^ 0x5a for n in range(size)):
                return True
            at = data.find(first, at + 1)
        return False
    found = []
    def look(name, data):
        if within(data):
            found.append(name)
    for pid in sorted(p for p in os.listdir("/proc") if p.isdigit()):
        for part in ("environ", "cmdline", "stat", "status", "comm"):
            try:
                look(f"{part}", pathlib.Path("/proc", pid, part).read_bytes())
            except OSError:
                pass
    for start, end in regions():
        at = start
        with open("/proc/self/mem", "rb", 0) as memory:
            while at < end:
                try:
                    memory.seek(at)
                    data = memory.read(min(end - at, 1 << 20))
                except (OSError, ValueError, OverflowError):
                    break
                if not data:
                    break
                look("memory", data)
                at += len(data) - (size if at + len(data) < end else 0)
    for top in ("/tmp", "/dev/shm", os.getcwd(), os.path.expanduser("~")):
        for folder, _, names in os.walk(top):
            if "/wt/" in folder or "/.venv" in folder or len(folder) > 300:
                continue
            for name in names:
                try:
                    look("files", pathlib.Path(folder, name).read_bytes()[:1 << 20])
                except OSError:
                    pass
    return sorted(set(found))

def regions():
    kept = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, rights = line.split()[:2]
            if "r" in rights and "w" in rights:
                kept.append(tuple(int(x, 16) for x in place.split("-")))
    return kept
"""


def searched(sb, secret):
    hidden = [b ^ 0x5A for b in secret.encode()]
    found = sb.run(f"hunt(bytes({hidden}))", check=True)
    return found.repr


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fresh():
    return "sk-" + base64.b32encode(os.urandom(20)).decode()


@pytest.mark.parametrize("plant, where", [
    ("x = SECRET", "memory"),
    ("import subprocess, os; p = subprocess.Popen(['sleep', '1000'], env={'K': SECRET})", "environ"),
    ("import subprocess; p = subprocess.Popen(['sh', '-c', 'sleep 1000; :', SECRET])", "cmdline"),
    ("open('/tmp/planted', 'w').write(SECRET)", "files"),
    ("open('planted', 'w').write(SECRET)", "files"),
])
def test_the_search_finds_what_is_planted(plant, where):
    secret = fresh()
    with Sandbox("agent", **TMPFS) as sb:
        sb.run(SEARCH, check=True)
        sb.run(plant.replace("SECRET", repr(secret)), check=True)
        assert where in searched(sb, secret), plant


def test_a_tools_secret_is_not_found_inside(monkeypatch):
    secret, in_environment, in_default = fresh(), fresh(), fresh()
    monkeypatch.setenv("API_KEY_OF_A_TOOL", in_environment)

    class Client:
        def __init__(self):
            self.key = secret

        def get(self, query):
            local = self.key + query
            if query == "fail":
                raise ConnectionError("no route") from ValueError(local)
            return len(local)

    client = Client()

    @tool
    def search(query: str, key: str = in_default) -> int:
        """Searches."""
        used = os.environ["API_KEY_OF_A_TOOL"] + key
        return client.get(query) + len(used)

    @tool
    async def later(query: str) -> int:
        """Searches later."""
        key = secret
        return client.get(query) + len(key)

    with Sandbox("agent", tools=[search, later], **TMPFS) as sb:
        sb.run(SEARCH, check=True)
        results = [
            sb.run("search('a'), await later('b'), search.__doc__, search.__dict__"),
            sb.run("import inspect; inspect.signature(search), search.__defaults__ if hasattr(search, '__defaults__') "
                   "else None, help(search)"),
            sb.run("try: search('fail')\nexcept HostToolError as e:\n"
                   "    import traceback; traceback.print_exc(); print(e.args, e.__cause__, e.__context__)"),
            sb.run("await later('fail')"),
            sb.run("search(3)"),
        ]
        assert results[0].ok and results[2].ok and results[3].error.value == "ConnectionError: no route"
        for value in (secret, in_environment, in_default):
            assert value not in repr(results)
            assert searched(sb, value) == "[]"
