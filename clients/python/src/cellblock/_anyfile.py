"""Files anywhere in the jail, for frameworks whose paths are the jail's own: /tmp/x as well as the workspace's.

Trust domain: host; what it gets comes from the jail. Invariants: a path is judged inside alone, by the kernel's file
requests or, for what these say is not theirs, by a Python that runs in the jail; nothing is read beyond `most` bytes.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
from typing import Optional, Sequence

from ._async import AsyncSandbox
from ._files import MAX_WHOLE

PART = 512 << 10  # bytes that a command reads: as base64 they are less than the least usual limits.output
TIMEOUT = 120.0

# Both say "ok" or "no ERRNO". A pipe is not waited for, and what is neither file nor folder is refused.
_BEGIN = """import base64, errno, os, stat, sys
path = sys.argv[1]
def checked(f):
    mode = os.fstat(f).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EACCES, "")
    return f
try:
"""
_END = """
except OSError as e:
    print("no", e.errno or errno.EIO)
"""
_READ = f"""{_BEGIN}    f = checked(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    at, left, parts = int(sys.argv[2]), int(sys.argv[3]), []
    while left > 0:  # those of /proc come in pages
        part = os.pread(f, left, at)
        parts.append(part)
        at, left = at + len(part), left - len(part) if part else 0
    print("ok", base64.b64encode(b"".join(parts)).decode())
{_END}"""
_WRITE = f"""{_BEGIN}    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    more = os.O_APPEND if sys.argv[2] == "more" else os.O_CREAT | os.O_TRUNC
    with open(checked(os.open(path, os.O_WRONLY | os.O_NONBLOCK | more, 0o666)), "wb") as f:
        f.write(sys.stdin.buffer.read())
    print("ok")
{_END}"""


class FileTooLargeError(OSError):
    """The file has more bytes than were allowed."""


def _checked(path: str) -> str:
    if not path or "\0" in path or path != path.encode("utf-8", "replace").decode():
        raise OSError(errno.EINVAL, "no name of a file", path)
    return path


async def _python(sandbox: AsyncSandbox, code: str, path: str, *words: object, stdin: Optional[bytes] = None) -> bytes:
    argv: Sequence[str] = ["python3", "-ISc", code, path, *map(str, words)]
    done = await sandbox.run_command(argv, timeout=TIMEOUT, stdin=stdin)
    said = done.stdout.split()
    if said[:1] == ["no"] and len(said) == 2 and said[1].isdecimal():
        number = int(said[1]) if len(said[1]) < 4 else errno.EIO
        raise OSError(number, os.strerror(number), path)
    try:
        if said[:1] != ["ok"]:
            raise ValueError
        return base64.b64decode("".join(said[1:]), validate=True)
    except (ValueError, binascii.Error):
        why = f"the jail's Python gave no answer (exit {done.returncode}, limit {done.limit}): {done.stderr:.500}"
        raise OSError(errno.EIO, why, path) from None


async def read_anyfile(sandbox: AsyncSandbox, path: str, most: int = MAX_WHOLE) -> bytes:
    """All bytes of a file of the jail; FileTooLargeError where it has more than `most`."""
    files = sandbox._files
    try:
        data = await files.read(_checked(path), 0, most + 1)
    except PermissionError:  # not in the workspace, or not allowed: the jail's own view of it
        parts, have = [], 0
        while have <= most:
            size = min(PART, most + 1 - have)
            part = await _python(sandbox, _READ, path, have, size)
            parts.append(part)
            have += len(part)
            if len(part) < size:
                break  # its end: what is written behind it meanwhile may never end
        data = b"".join(parts)
    if len(data) > most:
        raise FileTooLargeError(errno.EFBIG, f"more than {most} bytes", path)
    return data


async def write_anyfile(sandbox: AsyncSandbox, path: str, data: bytes) -> None:
    """Makes or replaces a file of the jail, and the folders above it."""
    try:
        await sandbox._files.write(_checked(path), data)
    except PermissionError:
        size = sandbox._part
        await _python(sandbox, _WRITE, path, "first", stdin=data[:size])
        for start in range(size, len(data), size):
            await _python(sandbox, _WRITE, path, "more", stdin=data[start : start + size])
