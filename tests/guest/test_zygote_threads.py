"""How many a zygote serves at once. As in test_zygote.py there is no jail."""

import signal
import socket
import struct

from test_zygote import DEADLINE, HELLO, TELL, new_zygote, warm_guest_dir, zygote  # noqa: F401 (fixtures)


def test_many_that_come_at_once(zygote):  # noqa: F811
    """Nobody who starts a kernel waits to connect: where there is no place for 256 it starts cold."""
    zygote.process.send_signal(signal.SIGSTOP)
    many = []
    for _ in range(256):
        many.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        many[-1].setblocking(False)
        many[-1].connect(zygote.address)
        many[-1].send(struct.pack("=9I", TELL, 1, *[0] * 7))
    zygote.process.send_signal(signal.SIGCONT)
    for each in many:
        each.settimeout(DEADLINE)
        assert HELLO.unpack_from(each.recv(1 << 17))[0] == 1 and each.recv(1 << 16)
        each.close()
