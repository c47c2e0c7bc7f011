"""What a host tool takes, from its signature: a JSON schema for the model, and a check of arguments for the host.

Trust domain: host. Arguments come from the jail, so nothing of them is evaluated, and what does not fit is refused
with the name of the argument. Invariant: no default value goes into the schema, for it may be a secret.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional

import msgspec
from msgspec import inspect as types

from ._errors import ToolError

_REF = "#/$defs/{name}"
_PLAIN = (types.AnyType, types.NoneType, types.BoolType, types.IntType, types.FloatType, types.StrType)
_ALLOWED = (
    "str, int, float, bool, None, Any, list, tuple, dict with str keys, Optional, Union, Literal, Enum, TypedDict, "
    "dataclass, or a pydantic model"
)


def is_model(kind: object) -> bool:
    """Whether that is a class of pydantic models; never imports pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _children(info: types.Type) -> Optional[Iterator[types.Type]]:
    """The types that a type is made of; None for one that JSON has no word for."""
    if isinstance(info, _PLAIN + (types.LiteralType,)):
        return iter(())
    if isinstance(info, (types.ListType, types.VarTupleType)):
        return iter((info.item_type,))
    if isinstance(info, types.TupleType):
        return iter(info.item_types)
    if isinstance(info, types.UnionType):
        return iter(info.types)
    if isinstance(info, types.DictType):
        text_keys = isinstance(info.key_type, (types.StrType, types.AnyType, types.LiteralType, types.EnumType))
        return iter((info.key_type, info.value_type)) if text_keys else None
    if isinstance(info, types.EnumType):
        return iter(()) if all(isinstance(m.value, (str, int)) for m in info.cls) else None
    if isinstance(info, (types.TypedDictType, types.DataclassType)):
        return (field.type for field in info.fields)
    if isinstance(info, types.Metadata):
        return iter((info.type,))
    if isinstance(info, types.CustomType) and is_model(info.cls):
        return iter(())
    return None


def _unfit(info: types.Type) -> Optional[types.Type]:
    """The first part of a type that is not allowed."""
    todo, seen = [info], set()
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        parts = _children(part)
        if parts is None:
            return part
        todo.extend(parts)
    return None


def _model_schema(kind: type) -> dict[str, Any]:
    if not is_model(kind):
        raise NotImplementedError
    schema: dict[str, Any] = typing.cast(Any, kind).model_json_schema(ref_template="#/$defs/{model}")
    return schema


def _model_decode(kind: type, value: Any) -> Any:
    if not is_model(kind):
        raise NotImplementedError
    return typing.cast(Any, kind).model_validate(value)


def without_defaults(schema: Any, names: bool = False) -> Any:
    """A schema without its "default" keys; `names`: the keys of this level are names that a user chose."""
    if isinstance(schema, list):
        return [without_defaults(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if names:
            kept[key] = without_defaults(value)
        elif key in ("enum", "const"):
            kept[key] = value
        elif key not in ("default", "$defs"):
            kept[key] = without_defaults(value, key in ("properties", "patternProperties"))
    return kept


def _hoist(schema: Any, into: dict[str, Any], who: str) -> None:
    """Moves the $defs of nested schemas (pydantic writes them) to where the references look for them."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo.extend(part)
        elif isinstance(part, dict):
            for name, definition in part.get("$defs", {}).items():
                if into.setdefault(name, definition) != definition:
                    raise ToolError(f"tool {who!r}: two types are both named {name!r}; rename one")
                todo.append(definition)
            todo.extend(value for key, value in part.items() if key not in ("enum", "const"))


class Parameters:
    """The parameters of a function, as JSON schema (`schema`), and what checks arguments against them."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        try:
            self.signature = _signature(function)
            hints = typing.get_type_hints(_plain_function(function), include_extras=True)
        except Exception as e:
            raise ToolError(f"tool {name!r}: its type hints can't be read: {type(e).__name__}: {e}") from None
        self.hints: dict[str, Any] = {}
        for parameter in self.signature.parameters.values():
            self.hints[parameter.name] = self._hint(parameter, hints)
        self.schema = self._schema(described(function.__doc__ or "", set(self.hints))[1])

    def _hint(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
        who = f"tool {self._name!r}: parameter {parameter.name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(f"{who} has no name for callers; write each parameter out")
        if parameter.name not in hints:
            cure = "; of a method give the bound one: tool(thing.method)" if parameter.name in ("self", "cls") else ""
            raise ToolError(f"{who} has no type hint; give it one (Any takes every JSON value){cure}")
        hint = hints[parameter.name]
        try:
            bad = _unfit(types.type_info(hint))
        except Exception as e:
            raise ToolError(f"{who}: {hint!r} is no type of JSON ({e}). Allowed: {_ALLOWED}") from None
        if bad is not None:
            part = getattr(bad, "cls", None) or type(bad).__name__.replace("Type", "").lower()
            raise ToolError(f"{who}: {hint!r} is no type of JSON, because of {part}. Allowed: {_ALLOWED}")
        return hint

    def _schema(self, said: Mapping[str, str]) -> dict[str, Any]:
        names = list(self.hints)
        try:
            schemas, shared = msgspec.json.schema_components(
                [self.hints[n] for n in names], schema_hook=_model_schema, ref_template=_REF
            )
        except Exception as e:
            raise ToolError(f"tool {self._name!r}: no schema can be made of its type hints: {e}") from None
        definitions: dict[str, Any] = dict(shared)
        _hoist([*schemas, *shared.values()], definitions, self._name)
        properties = {}
        for name, schema in zip(names, schemas):
            schema = without_defaults(schema)
            if name in said:
                schema = {**schema, "description": said[name]}
            properties[name] = schema
        needed = [p.name for p in self.signature.parameters.values() if p.default is p.empty]
        whole: dict[str, Any] = {"type": "object", "properties": properties, "required": needed}
        whole["additionalProperties"] = False
        if definitions:
            whole["$defs"] = {name: without_defaults(d) for name, d in definitions.items()}
        return whole

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name. TypeError as Python words it where they do not fit."""
        return dict(self.signature.bind(*args, **kwargs).arguments)

    def convert(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the function's types want them. ValueError names the one that does not fit, and why."""
        typed = {}
        for name, value in given.items():
            try:
                typed[name] = msgspec.convert(value, self.hints[name], dec_hook=_model_decode)
            except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as e:
                text = str(e).replace("`$", f"`{name}")
                raise ValueError(text if f"`{name}" in text else f"{text} - at `{name}`") from None
            unlike = _unlike(value, typed[name])
            if unlike:
                raise ValueError(f"{unlike[1]} - at `{name}{unlike[0]}`")
        return typed


def bound_names(function: Any) -> set[str]:
    """The keywords that a `functools.partial` has bound, or one that it is made of, or that functools.wraps wraps."""
    names: set[str] = set()
    while True:
        function = inspect.unwrap(function, stop=lambda f: isinstance(f, functools.partial))
        if not isinstance(function, functools.partial):
            return names
        names.update(function.keywords)
        function = function.func


def refuse_bound(function: Any, keywords: Iterable[str]) -> None:
    """TypeError for a call's keyword that a partial has bound, which it would take over its own."""
    for name in bound_names(function).intersection(keywords):
        raise TypeError(f"got an unexpected keyword argument {name!r}")


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature for callers, who don't choose what a partial has bound: a call's keyword would win over it.

    In the partial's own signature the parameters after a bound one are keyword-only; without it they are as they were.
    """
    signature, bound = inspect.signature(function), bound_names(function)
    if not bound:
        return signature
    plain = inspect.signature(_plain_function(function)).parameters
    left = [p for p in signature.parameters.values() if p.name not in bound]
    kinds = {p.name: plain[p.name].kind for p in left if p.kind is p.KEYWORD_ONLY and p.name in plain}
    return signature.replace(parameters=[p.replace(kind=kinds.get(p.name, p.kind)) for p in left])


def _plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return typing.cast(Callable[..., Any], getattr(type(function), "__call__", function))


def _unlike(given: Any, typed: Any) -> Optional[tuple[str, str]]:
    """What would be shown, and not run: a key that a dataclass or TypedDict does not have, a number that a float can't
    hold. Where that is, and why; made only then, for cells give long keys and many of them."""
    if isinstance(typed, float) and given != typed:
        return "", "A float can't hold this number"
    if isinstance(given, dict):
        if is_model(type(typed)):
            return None  # the model's own configuration says
        if not isinstance(typed, dict):
            fields = getattr(type(typed), "__dataclass_fields__", None)
            if fields is None:
                return None
            typed = {name: getattr(typed, name) for name in fields}
        plain = {getattr(k, "value", k): v for k, v in typed.items()}
        for key, value in given.items():
            if key not in plain:
                return f".{key}", "Object contains unknown field"
            unlike = _unlike(value, plain[key])
            if unlike:
                return f".{key}{unlike[0]}", unlike[1]
    elif isinstance(given, list) and isinstance(typed, (list, tuple)):
        for n, (value, part) in enumerate(zip(given, typed)):
            unlike = _unlike(value, part)
            if unlike:
                return f"[{n}]{unlike[0]}", unlike[1]
    return None


_SECTION = re.compile(r"(args|arguments|parameters|returns?|raises|yields?|examples?|notes?)\s*:?\s*$", re.I)
_SPHINX = re.compile(r":param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
_ENTRY = re.compile(r"(\w+)\s*(?:\([^)]*\)\s*)?:(?:\s+(.*))?$")


def described(doc: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """A docstring as its text before the first section, and what it says of each parameter.

    Reads the styles of Google ("Args:"), numpy ("Parameters" underlined) and Sphinx (":param x:").
    """
    head: list[str] = []
    said: dict[str, list[str]] = {}
    current: Optional[list[str]] = None
    section = ""
    for line in inspect.cleandoc(doc).splitlines():
        text = line.strip()
        sphinx, title = _SPHINX.match(text), _SECTION.match(text)
        entry = _ENTRY.match(text)
        if sphinx:
            section, current = "args", said.setdefault(sphinx.group(1), [sphinx.group(2)])
        elif title and line == text and (text.endswith(":") or not head or head[-1] == ""):
            section, current = title.group(1).lower(), None
        elif text.startswith(":") and section == "args":
            section, current = "other", None
        elif not section:
            head.append(text)
        elif set(text) <= {"-"}:
            continue
        elif section in ("args", "arguments", "parameters") and entry and entry.group(1) in names:
            first = "" if section == "parameters" and line == text else entry.group(2) or ""
            current = said.setdefault(entry.group(1), [first])
        elif section == "parameters" and line == text and text.split(" ")[0] in names:
            current = said.setdefault(text.split(" ")[0], [])
        elif current is not None:
            current.append(text)
    told = {name: " ".join(t for t in lines if t) for name, lines in said.items() if name in names}
    return "\n".join(head).strip(), {name: text for name, text in told.items() if text}
