"""For Jupyter servers and kernel gateways: kernels answer over their websockets without waiting for TCP.

A cell's answer is several small messages. The server's system holds each back until the client's system has
acknowledged the one before, which that does up to 40 ms later. In the server's configuration:

    --ServerApp.kernel_websocket_connection_class=cellblock.jupyter.PromptConnection
    --KernelGatewayApp.kernel_websocket_connection_class=cellblock.jupyter.PromptConnection
"""

from __future__ import annotations

from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):  # type: ignore[misc, unused-ignore]
    """The server's own connection, with TCP_NODELAY."""

    def connect(self) -> Any:
        self.websocket_handler.set_nodelay(True)
        return super().connect()
