"""The tests of `tests/qemu/run --host arm64`: those of inside.py, what tests/jail tries from inside a jail, what the
Python client's first example does, copies with threads and twins, with the programs of the aarch64 wheel on Debian's
arm64 kernel.
"""

import glob
import json
import os
import subprocess
import xml.etree.ElementTree

import inside
from inside import *  # noqa: F403 - its tests are tests here

USER = "somebody"


def suite(path, *words):
    """A file of tests by pytest. Returns how many passed, and what was skipped and why; raises what failed."""
    results = "/tmp/results.xml"
    env = {**os.environ, "CELLBLOCK_BUILD": inside.BUILD, "CELLBLOCK_TEST_USER": USER}
    env["CELLBLOCK_GUEST_DIR"] = f"{inside.VENV}/libexec/cellblock/guest"
    env["CELLBLOCK_TEST_PYTHONS"] = f"{inside.VENV}/bin/python"
    env["CELLBLOCK_TEST_THREADS"] = f"{inside.BUILD}/tests/threads.so"
    env["CELLBLOCK_TEST_DEADLINE"] = "600"
    env["TMPDIR"] = "/workspaces/tmp"  # /tmp is in memory, and no owner can be mapped there before Linux 6.3
    command = [f"{inside.VENV}/bin/python", "-m", "pytest", "-v", "-p", "no:cacheprovider", "--timeout", "1800"]
    with subprocess.Popen(
        [*command, "--junit-xml", results, path, *words], cwd=f"{inside.ROOT}/tests", env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        said = []
        for line in process.stdout:  # to be seen on the console, too
            print(line, end="", flush=True)
            said.append(line)
    assert process.returncode == 0, "".join(said)[-12000:]
    cases = list(xml.etree.ElementTree.parse(results).iter("testcase"))
    skipped = [f"{case.get('name')}: {case.find('skipped').get('message')}" for case in cases if len(case)]
    return "\n".join([f"{len(cases) - len(skipped)} passed", *skipped])


def before():
    """What udev and modprobe would load."""
    assert os.uname().machine == "aarch64"
    os.mkdir("/workspaces/tmp")
    os.chmod("/workspaces/tmp", 0o1777)
    with open("/proc/sys/vm/overcommit_memory", "w") as f:
        f.write("1")  # cells that are to meet limits.memory map more than this machine has
    found = {os.path.basename(path): path for path in glob.glob("/usr/lib/modules/**/*.ko", recursive=True)}
    for name in ("inet_diag", "tcp_diag", "udp_diag", "unix_diag", "overlay"):
        subprocess.run(["/usr/sbin/insmod", found[f"{name}.ko"]], check=True)


def test_units():
    """The C unit tests of the sandbox, and the kernel's that qemu-user can't run (packaging/wheel/unit_tests)."""
    failed, programs = [], sorted(glob.glob(f"{inside.BUILD}/tests/*_test_*"))
    assert programs
    for program in programs:
        status, out, err = inside.run(program)
        if status not in (0, 77):
            failed.append(f"{program} ends with {status}: {(out + err)[-2000:]}")
    assert not failed, "\n".join(failed)
    return f"{len(programs)} programs"


SANDBOX = """
from cellblock import Sandbox
with Sandbox() as box:
    print(box.run("sum(range(10))"))
    print(box.run("import os; os._exit(3)"))
    print(box.run("6 * 7"))
"""


def test_the_clients_first_example():
    for user in (False, True):
        status, out, err = inside.run(f"{inside.VENV}/bin/python", "-c", SANDBOX, user=user, timeout=600)
        print(out, err, flush=True)
        assert status == 0 and "45" in out and "42" in out, (status, out, err)


def test_explain():
    told = json.loads(inside.cellblock("explain", "--json", user=True)[1])
    names = {call for group in told["jail"]["syscalls"] for call in group["calls"].split()}
    assert "openat" in names and not names & {"open", "fork", "mkdir", "arch_prctl", "iopl"}, names


def test_attacks():
    return suite("jail/test_attacks.py", "-k", "not wins_outside")


def test_attacks_win_outside():
    return suite("jail/test_attacks.py", "-k", "wins_outside")


def test_escapes():
    return suite("jail/test_escapes.py")


def test_second_wall_from_inside():
    return suite("jail/test_landlock.py")


def test_limits():
    return suite("jail/test_limits.py")


def test_hosts():
    return suite("jail/test_hosts.py")


def test_copies_with_threads():
    return suite("guest/test_copier.py")


def test_twins():
    return suite("guest/test_twins.py")


def test_warm_start():
    status, out, err = inside.cellblock("install", "--sys-prefix", "--python", f"{inside.VENV}/bin/python")
    assert status == 0, (out, err)
    return suite("jail/test_warm.py", "-k", "not threads_of_libraries")  # without numpy
