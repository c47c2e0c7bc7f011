"""`cellblock mcp --http` before the protocol's own conformance suite, @modelcontextprotocol/conformance.

The suite is made for a server with tools, resources and prompts of given names; ours has other ones. results.json says
of each scenario of both revisions of the protocol which checks fail and why, and what passes for no reason of ours. The
suite comes from npm at test time, into the same cache as the suites of tests/frontends.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")

from mcpserver import TOKEN, Http  # noqa: E402
from suites import CACHE, finish, unfinished  # noqa: E402

pytestmark = pytest.mark.once
HERE = Path(__file__).parent / "conformance"
VERSION = "0.2.0-alpha.12"  # the first that knows 2026-07-28 has no other name than alpha
KNOWN = json.loads((HERE / "results.json").read_text())


def suite():
    """The suite's program; skips, with the reason, where it can't be had."""
    folder = CACHE / f"mcp-conformance-{VERSION}"
    program = folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("NOT RUN: the suite of MCP needs node and npm")
    if not program.exists():
        with unfinished(folder) as part:
            install = ["npm", "install", "--prefix", part, "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
            got = subprocess.run([*install, f"@modelcontextprotocol/conformance@{VERSION}"], capture_output=True,
                                 text=True, timeout=300)
            if got.returncode == 0:
                finish(part, folder)
        if not program.exists():
            pytest.skip(f"NOT RUN: @modelcontextprotocol/conformance {VERSION} can't be had: {got.stderr[-300:]}")
    return program


def failures(folder):
    """{scenario: names of the checks that failed}, and what the suite says of each check that did."""
    found, said = {}, {}
    for file in sorted(folder.glob("server-*/checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name[len("server-"):])
        checks = json.loads(file.read_text())
        found[scenario] = sorted({c["id"] for c in checks if c["status"] == "FAILURE"})
        said |= {c["id"]: (c.get("errorMessage"), c.get("details")) for c in checks if c["status"] == "FAILURE"}
    return found, said


@pytest.mark.timeout(560)
def test_the_suite_fails_where_it_is_known_to_and_nowhere_else(tmp_path):
    program = suite()
    server, runs = Http(tmp_path, "--files", "--checkpoints"), {}
    try:
        for revision in KNOWN:
            out = str(tmp_path / revision)
            words = ["server", "--url", server.url, "--requirements", revision, "--output-dir", out,
                     "--timeout", "120000"]
            runs[revision] = subprocess.Popen(
                ["node", "--import", str(HERE / "preload.mjs"), str(program), *words], cwd=tmp_path,
                env={**os.environ, "CELLBLOCK_MCP_TOKEN": TOKEN}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = {revision: run.communicate(timeout=540)[0].decode()[-3000:] for revision, run in runs.items()}
    finally:
        for run in runs.values():
            run.kill()
            run.wait()
        server.end()
    for revision, known in KNOWN.items():
        found, why = failures(tmp_path / revision)
        assert found, said[revision]
        wanted = {scenario: entry.get("fails", []) for scenario, entry in known.items()}
        more = {check: why[check] for scenario, checks in found.items() for check in checks
                if check not in wanted.get(scenario, [])}
        assert found == wanted, (revision, more, said[revision])


def test_the_list_says_why():
    for revision, known in KNOWN.items():
        for scenario, entry in known.items():
            assert set(entry) <= {"fails", "why"} and ("why" in entry or not entry.get("fails")), (revision, scenario)
