"""What tests of an overlay's changes ask for, and how they read it."""

import os
import time

LATER = "changed outside"  # in the reason of what is skipped
PATIENCE = 200  # s; 5,000 files took more than 60 where many others wanted the processors


def ask(k, op, channel="control"):
    c = k.client
    return c.reply(c.send("cellblock_file_request", {"op": op}, channel=channel), channel, PATIENCE).content


def listed(content):
    assert content["status"] == "ok", content
    assert not content["truncated"]
    return {(e["change"], e["path"]) for e in content["changes"]}


def tree(folder):
    return {
        str(p.relative_to(folder)): "-> " + os.readlink(p) if p.is_symlink() else p.read_text()
        for p in folder.rglob("*")
        if p.is_symlink() or not p.is_dir()
    }


def await_tick():
    """By the kernel's coarse clock what is as young as what it is compared with counts as no younger."""
    coarse, now = 5, time.time()
    while time.clock_gettime(coarse) <= now:
        pass


def skipped_of(content):
    return {e["path"]: e["reason"] for e in content["changes"] if e["change"] == "skipped"}
