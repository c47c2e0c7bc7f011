"""The kernel below a sandbox, for those who know jupyter_client."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ._errors import SandboxError
from ._launch import Process
from ._session import Session
from ._wire import ZmqTransport


class AsyncKernel:
    """The kernel of a sandbox. Each use of `km` and `kc` makes another one; close `kc`'s channels yourself."""

    _manager, _client = "AsyncKernelManager", "AsyncKernelClient"

    def __init__(self, session: Session, process: Optional[Process]) -> None:
        self.session, self._process = session, process

    @property
    def pid(self) -> Optional[int]:
        """The number of the kernel's process; None where it was not started by this program."""
        return None if self._process is None or self._process.closed else self._process.popen.pid

    @property
    def info(self) -> Dict[str, Any]:
        """The content of `kernel_info_reply`."""
        return self.session.info

    @property
    def connection(self) -> Dict[str, Any]:
        """What the connection file says: transport, ports, key."""
        connected = self.session.connected
        if connected is None or not isinstance(connected.transport, ZmqTransport):
            raise SandboxError("there is no connection file: the kernel is behind a server, or does not run")
        return dict(connected.transport.connection)

    @property
    def connection_file(self) -> str:
        """The connection file, for other clients of the same kernel (`jupyter console --existing FILE`)."""
        if self._process is None or self._process.closed:
            raise SandboxError("the kernel was not started by this program, or does not run")
        return os.fspath(self._process.file)

    @property
    def kc(self) -> Any:
        """A client of jupyter_client for the same kernel; call its `start_channels()`."""
        import jupyter_client

        client = getattr(jupyter_client, self._client)()
        client.load_connection_info(self.connection)
        return client

    @property
    def km(self) -> Any:
        """A manager of jupyter_client that can signal, interrupt and end the kernel's process."""
        import jupyter_client
        from jupyter_client.provisioning.local_provisioner import LocalProvisioner

        if self._process is None or self._process.closed:
            raise SandboxError("the kernel was not started by this program, or does not run")
        manager = getattr(jupyter_client, self._manager)(connection_file=self.connection_file)
        manager.load_connection_info(self.connection)
        provisioner = LocalProvisioner(parent=manager, kernel_id="cellblock")
        provisioner.process, provisioner.pid = self._process.popen, self._process.popen.pid
        provisioner.pgid = self._process.popen.pid
        manager.provisioner = provisioner
        return manager


class Kernel(AsyncKernel):
    """The same for programs without asyncio: a KernelManager and a BlockingKernelClient."""

    _manager, _client = "KernelManager", "BlockingKernelClient"
