"""The tests of `tests/qemu/run --host apparmor4`: AppArmor 4 keeps user namespaces from Cellblock, which says the one
command that gives them to this very program; that is followed word for word.

Debian's kernel has no sysctl of Ubuntu's that takes them from all programs without a profile. The same is done by a
profile of the host for each cellblock-jail. The user has sudo, as the command wants it.
"""

import json
import os
import re
import shlex
import shutil

import inside

HOST_PROFILE = """abi <abi/4.0>,
include <tunables/global>
profile no-namespaces /{home,opt}/**/cellblock-jail {
  file,
  capability,
  network,
  unix,
  signal,
  ptrace,
  mount,
  umount,
  pivot_root,
  mqueue,
}
"""
PAM = "".join(f"{kind} sufficient pam_permit.so\n" for kind in ("auth", "account", "session", "password"))


def put(path, text, mode):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def tell(venv, *words):
    return inside.run(f"{venv}/bin/cellblock", *words, user=True)


def doctor(venv):
    return json.loads(tell(venv, "doctor", "--json")[1])


def first_cell(name, venv):
    """What the first cell of a new kernel says: its result, or its error's text."""
    said = []

    def body(client):
        cell = client.run("6*7")
        said.append(cell.result or "\n".join(cell.content["traceback"]))

    inside.kernel(name, True, body, venv=venv)
    return said[0]


def as_one_line(text):
    """Without the colours, and the line breaks, of an error that is shown."""
    return " ".join(re.sub("\x1b\\[[0-9;]*m", "", text).split())


def copy(to):
    """The installation, without what clients import."""
    shutil.copytree(inside.VENV, to, symlinks=True, ignore=shutil.ignore_patterns("site-packages"))


def refused_then_followed(name, venv):
    told = doctor(venv)
    refused = [t for t in told["trials"] if t["result"] == "refused" and t["required"]]
    assert not told["jail"] and told["level"] == "container" and refused, told
    assert "AppArmor" in refused[0]["cause"], refused
    command = refused[0]["cure"].split(": ", 1)[1]
    assert shlex.split(command)[:2] == [f"{venv}/libexec/cellblock/cellblock-jail", "apparmor-profile"], command
    text = as_one_line(tell(venv, "doctor")[1])
    assert command in text, text
    cell = as_one_line(first_cell(f"{name}1", venv))
    assert command in cell, cell
    status, out, err = inside.run("sh", "-c", command, user=True)
    assert status == 0, (command, out, err)
    told = doctor(venv)
    assert told["jail"] and told["level"] == "no-cgroup", told
    assert first_cell(f"{name}2", venv) == "42"
    return f"{os.uname().release}: {command}"


def test_one_command_helps():
    inside.mount("securityfs", "/sys/kernel/security", "securityfs")
    for name in ("sudo", "other"):
        put(f"/etc/pam.d/{name}", PAM, 0o644)
    put("/etc/sudoers.d/user", "somebody ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    os.environ["PATH"] += ":/usr/sbin"
    assert doctor(inside.VENV)["level"] == "no-cgroup"
    put("/etc/apparmor.d/no-namespaces", HOST_PROFILE, 0o644)
    status, out, err = inside.run("apparmor_parser", "-r", "/etc/apparmor.d/no-namespaces")
    assert status == 0, (out, err)
    return refused_then_followed("a", inside.VENV)


def test_another_place_needs_its_own():
    """An environment that was copied, to a path that shells and profiles take care with."""
    venv = "/home/somebody/it's [1] venv"
    copy(venv)
    return refused_then_followed("b", venv)


def test_without_the_profile_it_is_refused_again():
    inside.run("sh", "-c", "apparmor_parser -R /etc/apparmor.d/cellblock-jail-* && rm /etc/apparmor.d/cellblock-jail-*")
    assert doctor(inside.VENV)["level"] == "container"


def test_the_profile_for_packages():
    """share/cellblock/apparmor, as its head says it, for programs in /opt/cellblock."""
    copy("/opt/cellblock")
    assert doctor("/opt/cellblock")["level"] == "container"
    use = "cp cellblock-jail /etc/apparmor.d/ && apparmor_parser -r /etc/apparmor.d/cellblock-jail"
    with open("/opt/cellblock/share/cellblock/apparmor/cellblock-jail") as f:
        assert use in f.read()
    status, out, err = inside.run("sh", "-c", f"cd /opt/cellblock/share/cellblock/apparmor && {use}")
    assert status == 0, (out, err)
    assert doctor("/opt/cellblock")["level"] == "no-cgroup"
