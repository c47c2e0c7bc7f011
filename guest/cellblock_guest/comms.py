"""Comms: messages between user code and its counterpart in the frontend (widgets and the like).

Built on the `comm` package when user code imports it (ipywidgets does), on a small class of the same surface otherwise.
"""

import sys
import uuid

from . import context, wire_constants as W
from .jsontext import encode

_UP = {"comm_open": W.UP_COMM_OPEN, "comm_msg": W.UP_COMM_MSG, "comm_close": W.UP_COMM_CLOSE}
_DOWN = {W.DOWN_COMM_OPEN: "comm_open", W.DOWN_COMM_MSG: "comm_msg", W.DOWN_COMM_CLOSE: "comm_close"}


class Comms:
    def __init__(self, guest):
        self.guest = guest
        self.manager = CommManager(self)
        self.comm_class = _comm_class(self)

    def publish(self, msg_type, comm_id, data=None, metadata=None, buffers=None, **keys):
        content = {"data": {} if data is None else data, "comm_id": comm_id}
        if msg_type == "comm_open":
            content.update(target_name=keys.get("target_name") or "comm", target_module=keys.get("target_module"))
        content = encode(content, lenient=False)
        meta = encode(metadata, lenient=False) if metadata else b""
        views = [_bytes_of(buffer) for buffer in buffers or ()]
        if len(views) > W.MAX_BUFFERS:
            raise ValueError("a comm message carries at most %d buffers" % W.MAX_BUFFERS)
        size = len(content) + len(meta) + sum(map(len, views))
        if size > self.guest.message_max:
            raise ValueError("a comm message of %d bytes is more than limits.message allows" % size)
        self.guest.output.flush()
        self.guest.wire.send(_UP[msg_type], context.current(), content, meta, views)

    def handle(self, kind, message):
        """A message from the frontend, in ipykernel's form for callbacks."""
        msg_type = _DOWN[kind]
        message["header"] = dict(self.guest.kernel.get_parent().get("header", {}), msg_type=msg_type)
        message["msg_type"] = msg_type
        message["parent_header"] = {}
        getattr(self.manager, msg_type)(None, None, message)

    def patch_package(self, package):
        """`comm` was imported: its hooks lead to us, its base class becomes ours. A user may call a file so."""
        if not hasattr(package, "base_comm"):
            return
        self.comm_class = _comm_class(self, package.base_comm.BaseComm)
        package.create_comm = self.create
        package.get_comm_manager = lambda: self.manager

    def create(self, *args, **kwargs):
        if "comm" not in sys.modules:
            try:
                import comm  # noqa: F401  (the import hook calls patch_package)
            except ImportError:
                pass
        return self.comm_class(*args, **kwargs)


def _bytes_of(buffer):
    """As they lie in memory."""
    view = memoryview(buffer)
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # columns first, nothing, or numbers of another machine's
        if not view.contiguous:
            raise
        return memoryview(view.tobytes("A"))


class CommManager:
    """Comms and targets by name; the surface of ipykernel's."""

    def __init__(self, comms):
        self._all = comms
        self.comms = {}
        self.targets = {}

    @property
    def kernel(self):
        return self._all.guest.kernel

    def register_target(self, target_name, f):
        if isinstance(f, str):
            module, _, name = f.rpartition(".")
            f = getattr(__import__(module, fromlist=[name]), name) if module else __import__(f)
        self.targets[target_name] = f

    def unregister_target(self, target_name, f=None):
        return self.targets.pop(target_name)

    def register_comm(self, comm):
        self.comms[comm.comm_id] = comm
        return comm.comm_id

    def unregister_comm(self, comm):
        self.comms.pop(comm.comm_id, None)

    def get_comm(self, comm_id):
        return self.comms.get(comm_id)

    def comm_open(self, stream, ident, msg):
        content = msg["content"]
        target_name = content.get("target_name")
        callback = self.targets.get(target_name)
        comm = self._all.create(comm_id=content["comm_id"], primary=False, target_name=target_name)
        self.register_comm(comm)
        if callback is None:
            print("No such comm target registered: %s" % target_name, file=sys.stderr)
        else:
            try:
                callback(comm, msg)
                return
            except Exception:
                self._show("opening a comm with target %s" % target_name)
        comm.close()

    def comm_msg(self, stream, ident, msg):
        comm = self._known(msg)
        if comm is not None:
            try:
                comm.handle_msg(msg)
            except Exception:
                self._show("a message of comm %s" % comm.comm_id)

    def comm_close(self, stream, ident, msg):
        comm = self._known(msg)
        if comm is not None:
            comm._closed = True
            self.unregister_comm(comm)
            try:
                comm.handle_close(msg)
            except Exception:
                self._show("closing comm %s" % comm.comm_id)

    def _known(self, msg):
        comm = self.comms.get(msg["content"].get("comm_id"))
        if comm is None:
            self._all.guest.log("no such comm: %s" % msg["content"].get("comm_id"))
        return comm

    def _show(self, what):
        import traceback

        print("Exception in %s:\n%s" % (what, traceback.format_exc()), file=sys.stderr)


def _comm_class(comms, base=None):
    if base is None:
        base = _PlainComm

    class Comm(base):
        kernel = property(lambda self: comms.guest.kernel)

        def __init__(self, *args, **kwargs):
            self._closed = True
            super().__init__(*args, **kwargs)

        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            comms.publish(msg_type, self.comm_id, data, metadata, buffers, **keys)

    _PlainComm.manager = comms.manager
    _PlainComm.shell = comms.guest.shell
    return Comm


class _PlainComm:
    """For interpreters without the `comm` package."""

    manager = shell = None

    def __init__(
        self,
        target_name="comm",
        data=None,
        metadata=None,
        buffers=None,
        comm_id=None,
        primary=True,
        target_module=None,
        **_ignored,
    ):
        self.target_name, self.target_module, self.primary = target_name, target_module, primary
        self.comm_id = comm_id or uuid.uuid4().hex
        self._closed, self._on_msg, self._on_close = True, None, None
        if primary:
            self.open(data, metadata, buffers)
        else:
            self._closed = False

    def open(self, data=None, metadata=None, buffers=None):
        self.manager.register_comm(self)
        self.publish_msg(
            "comm_open", data, metadata, buffers, target_name=self.target_name, target_module=self.target_module
        )
        self._closed = False

    def send(self, data=None, metadata=None, buffers=None):
        self.publish_msg("comm_msg", data, metadata, buffers)

    def close(self, data=None, metadata=None, buffers=None, deleting=False):
        if not self._closed:
            self._closed = True
            self.publish_msg("comm_close", data, metadata, buffers)
            if not deleting:
                self.manager.unregister_comm(self)

    def __del__(self):
        try:
            self.close(deleting=True)
        except Exception:
            pass

    def on_msg(self, callback):
        self._on_msg = callback

    def on_close(self, callback):
        self._on_close = callback

    def handle_msg(self, msg):
        if self._on_msg:
            self._on_msg(msg)

    def handle_close(self, msg):
        if self._on_close:
            self._on_close(msg)
