"""Git indexes byte by byte, as git writes them and as it would not. Also used inside jails: standard library only."""

import hashlib
import struct


def number(value):
    """Git's variable length: each further byte adds one more."""
    out = [value & 127]
    value >>= 7
    while value:
        value -= 1
        out.append(128 | value & 127)
        value >>= 7
    return bytes(reversed(out))


def entry(path, oid, mode=0o100644, version=2, last=b"", stage=0, flags=0, length=None, more=None, keep=None):
    path = path if isinstance(path, bytes) else path.encode()
    length = min(len(path), 0xFFF) if length is None else length
    more = b"" if more is None else struct.pack(">H", more)
    head = struct.pack(">10L", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + bytes.fromhex(oid)
    head += struct.pack(">H", flags | (0x4000 if more else 0) | stage << 12 | length) + more
    if version < 4:
        return head + path + bytes(8 - (len(head) + len(path)) % 8)
    if keep is None:
        keep = 0
        while keep < min(len(last), len(path)) and last[keep] == path[keep]:
            keep += 1
    return head + number(len(last) - keep) + path[keep:] + b"\0"


def extension(name, data=b""):
    return name.encode() + struct.pack(">L", len(data)) + data


def index(entries, version=2, extensions=b"", count=None):
    """entries: (path, oid, {of entry()})."""
    data = struct.pack(">4sLL", b"DIRC", version, len(entries) if count is None else count)
    last = b""
    for path, oid, *more in entries:
        data += entry(path, oid, version=version, last=last, **(more[0] if more else {}))
        last = path if isinstance(path, bytes) else path.encode()
    data += extensions
    return data + hashlib.sha1(data).digest()
