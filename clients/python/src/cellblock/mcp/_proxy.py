"""Tools of other MCP servers, as functions of the code inside ("code mode"). Their keys stay in those servers.

Trust domain: host. The servers are those that the user's file names; what the code inside passes on is JSON that fits
the tool's list of parameters, checked for size and depth as any host tool's. Invariant: of the file nothing but names,
descriptions and schemas of tools goes inside.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
import itertools
import json
import keyword
import os
import re
from typing import Any, Callable, Mapping, Optional

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from .._errors import ToolError
from .._tools import Bare, Limits, by_schema, check_name
from ._runs import approve

KNOWN = {"command", "args", "env", "cwd", "url", "headers", "tools", "approve", "timeout", "type"}
RESERVED = {*dir(builtins), *keyword.kwlist, "HostToolError", "HostToolCancelledError", "In", "Out", "exit", "quit"}
START = 60.0  # seconds for a server to come up, and to list its tools
TOOLS_MAX = 1000  # of one server
NAMING = ("tools", "approve")  # keys whose entries are names of tools
SHOWN = 20  # names of tools in an error


class RemoteToolError(Exception):
    """A tool of another server failed; the text is that server's."""


def read_servers(path: str) -> dict[str, dict[str, Any]]:
    """The `mcpServers` of a file. ValueError says what is wrong in it."""
    with open(path, encoding="utf-8") as file:
        try:
            said = json.load(file)
        except (ValueError, RecursionError) as e:
            raise ValueError(f"{path}: no JSON: {e}") from None
    servers = said.get("mcpServers") if isinstance(said, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise ValueError(f'{path}: an object is needed: {{"mcpServers": {{NAME: {{"command": …}}}}}}')
    for name, server in servers.items():
        where = f"{path}: mcpServers.{name}"
        if not isinstance(server, dict) or isinstance(server.get("command"), str) == isinstance(server.get("url"), str):
            raise ValueError(f"{where}: either command or url is needed")
        unknown = sorted(set(server) - KNOWN)
        if unknown:
            raise ValueError(f"{where}: {unknown[0]} is not known; allowed are {', '.join(sorted(KNOWN))}")
        for key, kind in (("args", list), ("env", dict), ("headers", dict), ("tools", list)):
            if key in server and not isinstance(server[key], kind):
                raise ValueError(f"{where}.{key}: must be {'a list' if kind is list else 'an object'}")
        if not isinstance(server.get("approve", False), (bool, list)):
            raise ValueError(f"{where}.approve: true, false, or a list of tools")
        for key in NAMING:
            if not all(isinstance(name, str) for name in _named(server, key)):
                raise ValueError(f"{where}.{key}: each entry must be a text, the name of a tool")
    return servers


def _named(server: Mapping[str, Any], key: str) -> list[Any]:
    """The names that a key lists; none where it is left out, or true or false."""
    entries = server.get(key)
    return entries if isinstance(entries, list) else []


def _check_names(server: str, said: Mapping[str, Any], names: list[str]) -> None:
    """ToolError for a name that the server does not have: the tool that `approve` means by it would run unasked."""
    for key in NAMING:
        for entry in _named(said, key):
            if entry not in names:
                have = ", ".join(f"{name[:100]!r}" for name in names[:SHOWN]) or "none"
                more = f" and {len(names) - SHOWN} others" if len(names) > SHOWN else ""
                raise ToolError(f"the MCP server {server!r}: {key} names {entry!r}, and it has no such tool: it has "
                                f"{have}{more}")


def _filled(text: str) -> str:
    """With ${NAME} replaced by this program's variables."""

    def value(match: re.Match[str]) -> str:
        if match.group(1) not in os.environ:
            raise ValueError(f"${{{match.group(1)}}} is named, and there is no such variable")
        return os.environ[match.group(1)]

    return re.sub(r"\$\{(\w+)\}", value, text)


def _python_name(server: str, tool: str, taken: set[str]) -> str:
    """A name for the code inside, whatever the server calls its tool: no server can take Python's own words away, or
    another server's, nor keep us from starting."""
    own = re.sub(r"[^A-Za-z0-9_]", "_", tool).lstrip("_")
    longer = "tool_" + re.sub(r"[^A-Za-z0-9_]", "_", f"{server}_{own}").lstrip("_")
    if not longer[5:6].isdigit():
        longer = longer[5:]
    numbered = (f"{longer[:56]}_{n}" for n in itertools.count(2))
    for name in itertools.chain((own, longer), numbered):
        if name not in taken and name not in RESERVED and len(name) <= 64 and name.isidentifier():
            return name
    raise AssertionError


class Proxied(Bare):
    """A tool of another server. In cells it is a plain function."""

    is_async, awaitable = True, False

    def __init__(self, client: Any, remote: Any, name: str, limits: Limits) -> None:
        self.name, self.description, self.limits = check_name(name), remote.description or "", limits
        self.input_schema: dict[str, Any] = dict(remote.input_schema)
        self._client, self._remote = client, remote.name

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return by_schema(args, kwargs, self.input_schema)

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        arguments = copy.deepcopy(dict(given))
        return lambda: self._call(arguments)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        done = await self._client.call_tool(self._remote, arguments)
        texts = [part.text for part in done.content if part.type == "text"]
        if done.is_error:
            raise RemoteToolError("\n".join(texts))
        found = done.structured_content
        if found is not None:
            return found["result"] if isinstance(found, dict) and set(found) == {"result"} else found
        if len(texts) == len(done.content):
            return "\n".join(texts)
        return [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in done.content]


class Proxies:
    """The connections to the servers of a file. Each lives in a task of its own, as the SDK wants it."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        self._servers = servers
        self._end = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.tools: list[Proxied] = []

    async def start(self) -> None:
        """Connects to all of them. ToolError names the one that can't be used."""
        for name, said in self._servers.items():
            ready: asyncio.Future[tuple[Any, list[Any]]] = asyncio.get_running_loop().create_future()
            task = asyncio.ensure_future(self._serve(said, ready))
            self._tasks.append(task)
            both: set[asyncio.Future[Any]] = {task, ready}
            await asyncio.wait(both, timeout=START, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                why = task.exception() if task.done() and not task.cancelled() else "no answer in time"
                raise ToolError(f"the MCP server {name!r} can't be used: {_root(why)}")
            self._offer(name, said, *ready.result())

    def _offer(self, server: str, said: Mapping[str, Any], client: Any, remote: list[Any]) -> None:
        wanted, ask = said.get("tools"), said.get("approve", False)
        _check_names(server, said, [one.name for one in remote])
        taken = {tool.name for tool in self.tools}
        for one in remote:
            if wanted is not None and one.name not in wanted:
                continue
            name = _python_name(server, one.name, taken)
            needs = ask if isinstance(ask, bool) else one.name in ask
            limits = Limits(timeout=said.get("timeout"), approve=approve if needs else None)
            limits.check(name)
            tool = Proxied(client, one, name, limits)
            taken.add(tool.name)
            self.tools.append(tool)

    async def _serve(self, said: Mapping[str, Any], ready: asyncio.Future[tuple[Any, list[Any]]]) -> None:
        async with _client(said) as client:
            ready.set_result((client, await _listed(client)))
            await self._end.wait()

    async def close(self) -> None:
        """Ends the connections, and the servers that were started for them."""
        self._end.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _listed(client: Client) -> list[Any]:
    """The tools of all pages. RemoteToolError if they are too many, or do not end."""
    tools: list[Any] = []
    cursor: Optional[str] = None
    for _ in range(TOOLS_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) > TOOLS_MAX:
            break
    if cursor is not None or len(tools) > TOOLS_MAX:
        raise RemoteToolError(f"its list of tools does not end, or has more than {TOOLS_MAX}")
    return tools


def _client(said: Mapping[str, Any]) -> Client:
    if "command" in said:
        env = {str(k): _filled(str(v)) for k, v in said.get("env", {}).items()}
        arguments = [_filled(str(a)) for a in said.get("args", [])]
        cwd: Optional[str] = said.get("cwd")
        return Client(StdioServerParameters(command=said["command"], args=arguments, env=env, cwd=cwd))
    import httpx2

    headers = {str(k): _filled(str(v)) for k, v in said.get("headers", {}).items()}
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300), follow_redirects=False)
    return Client(streamable_http_client(said["url"], http_client=http))


def _root(error: object) -> str:
    """The innermost of grouped errors, in a line."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
