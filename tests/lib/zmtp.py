"""A peer of ZeroMQ's sockets on a bare TCP connection: it may send what no library would.

Role: test code, outside the jail. Used by tests/protocol.
"""

import socket
import struct


def _ready(kind):
    body = b"\x05READY"
    for name, value in ((b"Socket-Type", kind), (b"Identity", b"")):
        body += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return b"\x04" + bytes([len(body)]) + body


def connect(connection, channel, kind=b"DEALER"):
    """A connected socket, greeted as one without encryption."""
    s = socket.create_connection((connection["ip"], connection[f"{channel}_port"]))
    s.settimeout(30)
    s.sendall(b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + b"\0" * 31)
    _take(s, 64)
    s.sendall(_ready(kind))
    _, n = _take(s, 2)
    _take(s, n)
    return s


def _take(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise ConnectionError("closed by the kernel")
        data += more
    return data


def part(data, more=True):
    """A frame of a message."""
    if len(data) < 256:
        return bytes([more, len(data)]) + data
    return bytes([2 | more]) + struct.pack(">Q", len(data)) + data
