"""get_ipython().kernel: the part of ipykernel's kernel object that libraries use. No socket is behind it."""

import sys

from . import context


class Session:
    """Looks like jupyter_client's session as far as user code sends displays through it."""

    session = "cellblock"
    username = "user"

    def __init__(self, kernel):
        self._kernel = kernel

    def send(self, stream, msg_or_type, content=None, parent=None, ident=None, buffers=None, metadata=None, **_ignored):
        msg_type = msg_or_type if isinstance(msg_or_type, str) else msg_or_type["header"]["msg_type"]
        if not isinstance(msg_or_type, str):
            content, metadata = msg_or_type.get("content"), msg_or_type.get("metadata", metadata)
        self._kernel.send_response(stream, msg_type, content, metadata=metadata, buffers=buffers)

    def msg(self, msg_type, content=None, parent=None, header=None, metadata=None):
        return {
            "header": {"msg_type": msg_type},
            "msg_type": msg_type,
            "content": content or {},
            "parent_header": parent or {},
            "metadata": metadata or {},
        }


class Kernel:
    implementation = "cellblock"
    banner = ""
    eventloop = None
    _poll_interval = 0.01

    def __init__(self, guest):
        self._guest = guest
        self.session = Session(self)
        self.iopub_socket = self.stdin_socket = object()
        self.shell_handlers, self.control_handlers = {}, {}
        self.language_info = {
            "name": "python",
            "version": sys.version.split()[0],
            "mimetype": "text/x-python",
            "file_extension": ".py",
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "codemirror_mode": {"name": "ipython", "version": 3},
        }

    @property
    def shell(self):
        return self._guest.shell

    @property
    def comm_manager(self):
        return self._guest.comms.manager

    @property
    def io_loop(self):
        from tornado.ioloop import IOLoop

        return IOLoop.current()

    @property
    def log(self):
        import logging

        return logging.getLogger("cellblock")

    @property
    def user_ns(self):
        return self._guest.shell.user_ns

    @property
    def execution_count(self):
        return self._guest.shell.execution_count

    def get_parent(self, channel=None):
        request = context.current()
        header = self._guest.header_of(request) or {"msg_id": str(request), "msg_type": "execute_request"}
        code, cell_id = self._guest.cells.get(request, (None, None))
        return {
            "header": dict(header, cellblock_request=request),
            "parent_header": {},
            "metadata": {"cellId": cell_id} if cell_id else {},
            "content": {} if code is None else {"code": code},
        }

    def set_parent(self, ident, parent, channel="shell"):
        """From here on this thread or task speaks for the request that `parent` is of. A token for context.reset."""
        header = (parent or {}).get("header", parent or {})
        request = header.get("cellblock_request")
        if not request:
            known = [*self._guest.headers.items(), *self._guest.comm_headers.items()]
            request = next((r for r, h in known if h.get("msg_id") == header.get("msg_id")), context.current())
        return context.set_current(request)

    @property
    def _parent_header(self):
        return self.get_parent()

    @property
    def _parent_ident(self):
        return {"shell": b"", "control": b""}

    def _topic(self, topic):
        return ("kernel.cellblock." + topic).encode()

    def send_response(
        self,
        stream,
        msg_or_type,
        content=None,
        ident=None,
        buffers=None,
        track=False,
        header=None,
        metadata=None,
        channel=None,
    ):
        guest, content = self._guest, content or {}
        if msg_or_type in ("display_data", "update_display_data"):
            guest.send_display(
                msg_or_type,
                {
                    "data": content.get("data", {}),
                    "metadata": content.get("metadata", {}),
                    "transient": content.get("transient", {}),
                },
            )
        elif msg_or_type == "clear_output":
            guest.send_display(msg_or_type, {"wait": bool(content.get("wait"))})
        elif msg_or_type == "execute_result":
            guest.send_result(content.get("data", {}), content.get("metadata", {}), content.get("transient"))
        elif msg_or_type == "stream":
            (sys.stderr if content.get("name") == "stderr" else sys.stdout).write(content.get("text", ""))
        elif msg_or_type == "error":
            guest.send_error(content.get("ename", ""), content.get("evalue", ""), list(content.get("traceback", ())))
        elif msg_or_type in ("comm_open", "comm_msg", "comm_close"):
            guest.comms.publish(
                msg_or_type,
                content["comm_id"],
                content.get("data"),
                metadata,
                buffers,
                target_name=content.get("target_name"),
                target_module=content.get("target_module"),
            )
        else:
            raise ValueError("a cell cannot send messages of type %r" % msg_or_type)

    def raw_input(self, prompt=""):
        return self._guest.prompt.input(prompt)

    def getpass(self, prompt="", stream=None):
        return self._guest.prompt.getpass(prompt)

    def do_shutdown(self, restart):
        raise RuntimeError("a cell can't end or restart its kernel, which runs outside of the jail: the frontend can")

    def do_one_iteration(self):
        """Requests wait until the cell ends; only the loop's own callbacks could run, and they do at the next await."""
