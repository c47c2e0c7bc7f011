"""`cellblock mcp`: the command line of the MCP server."""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import os
import signal
import sys
from typing import Any, NoReturn, Optional, Sequence

CURE = "install it beside this Python: pip install 'cellblock[mcp]' (Python 3.10 or newer)"


def _number(kind: type, least: float, most: float = math.inf) -> Any:
    def parse(text: str) -> Any:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least:g}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most:g}")
        return value

    parse.__name__ = "number"
    return parse


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="cellblock mcp", allow_abbrev=False, description=(
        "An MCP server over stdio: stateful Python in a jail for any MCP client."))
    p.add_argument("--policy", metavar="NAME|FILE", help="what the jail allows (default: CELLBLOCK_POLICY, else agent)")
    p.add_argument("--workspace", metavar="DIR", help="the one folder that cells see, or \"project\", the project that "
                   "the current folder lies in (default: an empty one)")
    p.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="set one key of the policy")
    p.add_argument("--files", action="store_true", help="also offer read_file, write_file and list_files")
    p.add_argument("--checkpoints", action="store_true", help="also offer checkpoint, rollback, workspace_changes")
    p.add_argument("--sessions", metavar="N", type=_number(int, 1), default=8, help="sessions at most (default: 8)")
    p.add_argument("--lifetime", metavar="S", type=_number(float, 1), default=3600.0,
                   help="seconds without use, after which a session ends (default: 3600)")
    p.add_argument("--http", metavar="PORT", type=_number(int, 0, 65535),
                   help="serve streamable HTTP on this port of 127.0.0.1 (0: any free one) in place of stdio")
    p.add_argument("--token-file", metavar="FILE",
                   help="with --http: the bearer token that clients must send; left out: a new one, told on stderr")
    p.add_argument("--proxy", metavar="FILE",
                   help="offer the tools of the MCP servers that this file names to the code inside, as functions")
    return p


def policy(arguments: argparse.Namespace) -> Any:
    """The Policy of the command line. Without a folder the workspace is an empty one that ends with the session."""
    from .. import Policy

    settings: dict[str, Any] = {}
    for pair in arguments.set:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair}: write it as KEY=VALUE")
        settings[key] = value
    workspace = arguments.workspace or settings.pop("workspace.path", None)
    if workspace is None:
        settings.setdefault("workspace.mode", "tmpfs")
    elif workspace == "project":
        settings["workspace.path"], workspace = workspace, None
    elif not os.path.isdir(workspace):
        raise ValueError(f"the workspace {workspace}: there is no such folder")
    return Policy(arguments.policy, workspace=workspace, settings=settings)


def fail(text: str, status: int = 1) -> NoReturn:
    print(f"cellblock mcp: {text}", file=sys.stderr)
    sys.exit(status)


async def stdio(server: Any) -> None:
    """Serves until the client closes its end, or a signal ends us."""
    from ._stdio import serve

    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def tell(number: int) -> None:
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, tell, number)
    serving = asyncio.ensure_future(serve(server))
    both: set[asyncio.Future[Any]] = {serving, told}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await server.close()
    if not told.done():
        return await serving
    # A thread waits for the client's next line. Nothing wakes it but that line, and Python's end would wait for it.
    sys.stderr.flush()
    os._exit(128 + told.result())


def main(argv: Optional[Sequence[str]] = None) -> None:
    arguments = parser().parse_args(argv)
    gc.disable()  # what is imported stays: to look for garbage in it is a fifth of the start
    try:
        from ._proxy import read_servers
        from ._server import CommandSandbox, Options, Server
    except ImportError as e:
        fail(f"the MCP SDK is not there ({e}); {CURE}")
    gc.freeze()
    gc.enable()
    from .. import CellblockError

    try:
        chosen = policy(arguments)
    except (CellblockError, ValueError) as e:
        fail(str(e), 2)
    shared = arguments.http is not None
    try:
        proxy = None if arguments.proxy is None else read_servers(arguments.proxy)
        options = Options(arguments.files, arguments.checkpoints, arguments.sessions, arguments.lifetime, shared, proxy)
        server = Server(lambda s: CommandSandbox(chosen, tools=s.tools), options)
        if shared:
            from ._http import serve

            asyncio.run(serve(server, arguments.http, arguments.token_file))
        else:
            asyncio.run(stdio(server))
    except (CellblockError, OSError, ValueError) as e:
        fail(str(e))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
