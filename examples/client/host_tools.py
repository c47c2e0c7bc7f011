"""Code in the jail calls functions of this program: the key stays here, and a person is asked before a deletion."""

import os

from cellblock import Sandbox, tool

KEY = os.environ.get("LIBRARY_KEY", "sk-stays-outside")
BOOKS = {"Emma": 1815, "Dracula": 1897, "Ulysses": 1922}


def ask(call):
    print("asked:", call)  # a real program asks a person here
    return call.arguments["title"] != "Emma" or "Emma stays"


@tool(timeout=10)
def books(before: int = 2000) -> dict[str, int]:
    """The titles of books, and their years.

    Args:
        before: only books that are older than this year
    """
    assert KEY.startswith("sk-")  # what needs the key happens here
    return {title: year for title, year in BOOKS.items() if year < before}


@tool(approve=ask, max_calls=2)
async def delete(title: str) -> int:
    """Deletes a book, and gives the number of those that are left."""
    del BOOKS[title]
    return len(BOOKS)


with Sandbox("agent", policy={"workspace.mode": "tmpfs"}, tools=[books, delete]) as sb:
    print(sb.run("old = books(before=1900); sorted(old)").repr)
    print(sb.run("await delete('Dracula')").repr)
    result = sb.run("await delete('Emma')")
    print(result.error, [call["tool"] for call in result.calls])
    print("inside:", sb.run("import os; [v for v in os.environ.values() if v.startswith('sk-')]").repr)
