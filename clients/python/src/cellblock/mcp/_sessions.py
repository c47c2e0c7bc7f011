"""The sessions of the MCP server: each is a sandbox with a name that cannot be guessed.

Trust domain: host. Invariants: never more than `most`; one that nobody used for `lifetime` seconds ends, and who goes
on without knowing is told; what a client is given of a session can only be asked for by who has its name.
"""

from __future__ import annotations

import asyncio
import collections
import secrets
import time
from typing import Any, Callable, NamedTuple, Optional

from .. import AsyncSandbox

KEPT_ITEMS, KEPT_BYTES = 64, 64 << 20  # of one session: outputs that are too large for a reply
ANEW = (
    "[This connection's session had ended after {:g} seconds without use. This is a new one: variables and files of "
    "earlier calls are gone, but for what cells wrote to the workspace's folder itself.]"
)


class Item(NamedTuple):
    """Something that a client may fetch later."""

    mime: str
    data: bytes


class SessionError(Exception):
    """There is no such session, or no place for another. The text is meant for the model."""


class McpSession:
    """A sandbox, its name, and what of its output waits to be fetched."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.name = "s_" + secrets.token_urlsafe(24)
        self.sandbox = sandbox
        self.users, self.used = 0, time.monotonic()
        self.note: Optional[str] = None  # what the next reply begins with
        self.items: collections.OrderedDict[str, Item] = collections.OrderedDict()

    def head(self) -> dict[str, Any]:
        """What a reply begins with: the session's name, and the note that no reply has told yet."""
        note, self.note = self.note, None
        return {"session": self.name, "note": note}

    def keep(self, mime: str, data: bytes) -> Optional[str]:
        """Keeps something to be fetched; gives its address, None where it is too large. The oldest go first."""
        if len(data) > KEPT_BYTES:
            return None
        key = secrets.token_urlsafe(12)
        self.items[key] = Item(mime, data)
        while len(self.items) > KEPT_ITEMS or sum(len(i.data) for i in self.items.values()) > KEPT_BYTES:
            self.items.popitem(last=False)
        return f"cellblock://{self.name}/{key}"


class Sessions:
    """All sessions of one server, which is of one client or of one token."""

    def __init__(self, make: Callable[[], AsyncSandbox], most: int, lifetime: float, shared: bool) -> None:
        self._make, self._most, self._lifetime = make, most, lifetime
        self._all: dict[str, McpSession] = {}
        self._default: Optional[str] = None
        self._shared = shared
        self._watch: Optional[asyncio.Task[None]] = None
        self._making = asyncio.Lock()

    async def get(self, name: Optional[str]) -> McpSession:
        """The session of that name; without one this connection's, or a new one where several clients share us."""
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._end_unused())
        if name and name != "new":
            found = self._all.get(name)
            if found is None:
                raise SessionError(
                    f"there is no such session: it ended after {self._lifetime:g} seconds without use, or made room "
                    f"for a newer one ({self._most} at most), or never was. With \"new\" in place of its name you "
                    "get a new one"
                )
            return found
        async with self._making:
            if not name and not self._shared and self._default in self._all:
                return self._all[self._default]
            session = await self._new()
            if not name and not self._shared:  # of many clients no session is anyone's own
                if self._default is not None:
                    session.note = ANEW.format(self._lifetime)
                self._default = session.name
            return session

    async def _new(self) -> McpSession:
        if len(self._all) >= self._most:
            idle = [s for s in self._all.values() if s.users == 0 and s.name != self._default]
            if not idle:
                raise SessionError(f"all {self._most} sessions are in use; go on with one of them")
            await self._end(min(idle, key=lambda s: s.used))
        session = McpSession(self._make())
        self._all[session.name] = session
        return session

    def find(self, name: str, key: str) -> Optional[Item]:
        session = self._all.get(name)
        return None if session is None else session.items.get(key)

    async def _end(self, session: McpSession) -> None:
        self._all.pop(session.name, None)
        try:
            await session.sandbox.close()
        except Exception:
            pass  # it was broken

    async def _end_unused(self) -> None:
        while True:
            await asyncio.sleep(max(0.05, min(self._lifetime / 4, 60)))
            for session in list(self._all.values()):
                if session.users == 0 and time.monotonic() - session.used > self._lifetime:
                    await self._end(session)

    async def close(self) -> None:
        """Ends all sessions."""
        if self._watch is not None:
            self._watch.cancel()
        for session in list(self._all.values()):
            await self._end(session)
