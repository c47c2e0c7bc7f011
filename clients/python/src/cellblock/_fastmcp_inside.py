"""How code of FastMCP's CodeMode runs in the jail: as the body of an async function, which may `return`.

Trust domain: guest; code beside it can replace all of this. So it checks nothing that the host relies on.
"""

import ast
import json


def _compiled(code):
    """The text as `async def`, without touching its lines; a last expression is what it returns."""
    tree = ast.parse(code, "<code>")
    body = tree.body or [ast.Pass()]
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
    made = ast.parse("async def code(): pass", "<code>")
    made.body[0].body = body
    return compile(ast.fix_missing_locations(made), "<code>", "exec")


def _plain(value):
    for method in ("tolist", "model_dump", "isoformat", "_asdict"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    return str(value)


async def run(code, inputs, functions):
    """What the code returns, as JSON, in a list. ValueError: it has NaN or infinity, which no result can have."""
    names = dict(functions, __name__="__main__", **inputs)
    exec(_compiled(code), names)
    return json.loads(json.dumps([await names["code"]()], default=_plain, allow_nan=False))
