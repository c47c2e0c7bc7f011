"""smolagents' code agents, jailed: `CodeAgent(tools, model, executor=CellblockExecutor())`, or `code_agent(…)`.

The agent's code runs in a Sandbox. Its tools, and managed agents among them, stay here as host tools: the code calls
them by name, their keys and their state never go inside. Source: smolagents 1.26 (PythonExecutor, LocalPythonExecutor).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import os
import pathlib
import re
import threading
import warnings
from typing import Any, Callable, Iterator, Literal, Mapping, Optional, Sequence, Union

from smolagents import ActionStep, CodeAgent, Tool
from smolagents.agents import AGENT_REGISTRY
from smolagents.local_python_executor import BASE_BUILTIN_MODULES, CodeOutput, PythonExecutor
from smolagents.utils import truncate_content

from ._adapters import ANEW, _nothing
from ._carry import Room, pack, unpack
from ._carry_inside import MARK
from ._errors import CellblockError, CheckpointError, SandboxError, ToolError
from ._result import Result, plain, shorten
from ._sync import Sandbox
from ._tools import Approve, Bare, Call, Limits, Refused, by_name, check_name
from ._values import code_to_call, imported

INSIDE = (pathlib.Path(__file__).parent / "_carry_inside.py").read_text(encoding="utf-8")
MODULE = "cellblock_carry"  # in the jail
HOST = "host_"  # in front of the names under which the host's tools are known there
CLEAN = "cellblock-clean"
PRINTED = 50_000  # characters, as LocalPythonExecutor has it
Fresh = Literal["never", "run", "step"]

_BEGIN = """def _begin(source, modules):
    sys, types = {sys}, {types}
    if {module!r} not in sys.modules:
        made = types.ModuleType({module!r})
        exec(compile(source, {module!r}, "exec"), made.__dict__)
        sys.modules[{module!r}] = made
    find = {find}.util.find_spec
    missing = [name for name in modules if find(name) is None]
    return {{"missing": missing, "watched": sys.modules[{module!r}].watch()}}
try:
    _found = _begin({source!r}, {modules!r})
finally:
    del _begin
"""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "array": (list, tuple),
    "object": (dict,), "null": (type(None),),
}
_PACKED = {"float": float, "dict": dict, "tuple": tuple}  # what is one of these types, and has another form on its way
_SEVERAL = {"anyOf", "oneOf", "allOf", "$ref"}  # a schema with one of these has no type, or one that says little


class ExecutionError(CellblockError):
    """The agent's code failed; the text is what its model reads. `result` has the whole."""

    def __init__(self, text: str, result: Optional[Result] = None) -> None:
        super().__init__(text)
        self.result = result


class _Pixels:
    """What the pictures of all calls that run at once may have: a call gives its part back when it ends."""

    def __init__(self) -> None:
        self._room, self._lock = Room(), threading.Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[Room]:
        part = _Part(self._room, self._lock)
        try:
            yield part
        finally:
            part.give_back()


class _Part(Room):
    def __init__(self, room: Room, lock: threading.Lock) -> None:
        self._room, self._lock, self._taken = room, lock, 0

    def take(self, image: Any) -> None:
        with self._lock:
            before = self._room.pixels
            self._room.take(image)
            self._taken += before - self._room.pixels

    def give_back(self) -> None:
        with self._lock:
            self._room.pixels += self._taken


class _AgentTool(Bare):
    """A tool or managed agent of smolagents. In the jail a function of its own name stands before it."""

    is_async = awaitable = False

    def __init__(
        self, name: str, tool: Any, limits: Limits, step: Callable[[], list[Any]], pixels: _Pixels
    ) -> None:
        self.tool, self.agents_name = tool, check_name(name)
        self.name, self.limits = check_name(HOST + name), limits
        self.description = str(getattr(tool, "description", "") or "")
        self.inputs: Mapping[str, Any] = getattr(tool, "inputs", None) or {}
        self.input_schema = {"type": "object", "properties": {"args": {"type": "array"}, "kwargs": {"type": "object"}}}
        self._step = step if name == "final_answer" else None
        self._pixels = pixels
        parameters = inspect.signature(getattr(tool, "forward", tool)).parameters
        left_out = {n for n, p in parameters.items() if p.default is not p.empty}
        if hasattr(tool, "forward") and any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            left_out = set(self.inputs)  # of MCP and LangChain: the tool itself says what it lacks
        self._needed = [n for n, about in self.inputs.items() if not about.get("nullable") and n not in left_out]

    def inside(self) -> list[Any]:
        return [self.agents_name, self.name, self.description, self._step is not None]

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) != 2 or not isinstance(args[0], list) or not isinstance(args[1], dict) or kwargs:
            raise TypeError("is called by the function of the agent's tool")
        place, named = self._spread(args[0], args[1])
        return by_name(place, named, list(self.inputs), self._needed, False)

    def _spread(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """One dict whose keys are all arguments' names is these arguments, as Tool.__call__ has it."""
        if len(args) != 1 or kwargs or not isinstance(args[0], dict) or not isinstance(self.tool, Tool):
            return args, kwargs
        spread = self.inputs.keys() >= args[0].keys() and (args[0] or not self._needed)
        return ([], args[0]) if spread else (args, kwargs)

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        """Nothing is decoded here, in the loop that all sandboxes share, before there is leave and a place for it."""
        for name, value in given.items():
            self._check(name, value)
        answers = None if self._step is None else self._step()  # of the step that calls, also if it has ended by then

        def call() -> Any:
            with self._pixels.lent() as room:
                try:
                    typed = {name: unpack(value, room) for name, value in given.items()}
                except ValueError as e:
                    raise Refused("ValueError", f"arguments of {self.agents_name}: {e}") from None
                answer = self.tool(**typed)
                if answers is None:
                    return self._packed(answer)
                if not answers:
                    answers.append(answer)
                return None

        return call

    def _check(self, name: str, value: Any) -> None:
        """The type of an argument, as it came from the jail."""
        about = self.inputs[name]
        if (value is None and about.get("nullable")) or _SEVERAL & about.keys():
            return
        said = about.get("type", "any")
        wanted = [said] if isinstance(said, str) else list(said)
        if any(kind not in _TYPES for kind in wanted):  # any, image, audio
            return
        kind = type(value)
        text = kind.__name__
        if isinstance(value, dict) and MARK in value:
            text = value[MARK][:20] if isinstance(value[MARK], str) else "value of no known form"
            kind = _PACKED.get(text, object)
        fits = any(issubclass(kind, _TYPES[k]) and (k == "boolean" or kind is not bool) for k in wanted)
        if not fits:
            raise ValueError(f"argument {name} is a {text}, and must be: {' or '.join(wanted)}")

    def _packed(self, answer: Any) -> Any:
        """A picture goes as PNG, sound as the bytes of a file; of other objects only what is data."""
        if type(answer).__name__ == "AgentAudio":
            answer = pathlib.Path(str(answer.to_string())).read_bytes()
        elif type(answer).__name__ in ("AgentImage", "AgentText"):
            answer = answer.to_raw()
        try:
            return pack(answer)
        except TypeError as e:
            raise TypeError(f"the tool {self.agents_name} returned what the jailed code can't have: {e}") from None


class CellblockExecutor(PythonExecutor):
    """Runs an agent's code in a jail: `CodeAgent(tools, model, executor=CellblockExecutor(["numpy.*"]))`.

    `additional_authorized_imports`: what the code may import beside smolagents' own list; `"*"` is everything. Give the
    agent the same list, or its prompt says another: `code_agent` does both. `fresh`: "never" keeps variables for the
    executor's life, "run" begins each run of the agent anew, "step" each step. `approve`, `tool_timeout` (seconds),
    `max_calls` (in one step): of each tool but final_answer, as in `cellblock.tool`. `timeout`: seconds for a step.
    Other keywords are those of `Sandbox`. It starts with the agent's first run; `cleanup()` ends it.
    """

    def __init__(
        self, additional_authorized_imports: Sequence[str] = (), *, base: Any = None, timeout: Optional[float] = 30,
        max_print_outputs_length: Optional[int] = None, fresh: Fresh = "never", approve: Optional[Approve] = None,
        tool_timeout: Optional[float] = None, max_calls: Optional[int] = None, **sandbox: Any,
    ) -> None:
        if fresh not in ("never", "run", "step"):
            raise ValueError(f'fresh is {fresh!r}; give "never", "run" or "step"')
        if isinstance(additional_authorized_imports, str):
            raise ValueError("additional_authorized_imports is a text; give a list of texts")
        for word in ("tools", "imports"):
            if word in sandbox:
                raise ValueError(f"{word} can't be given here: smolagents has its own way (send_tools, the imports)")
        own = {
            "base": base, "timeout": timeout, "max_print_outputs_length": max_print_outputs_length, "fresh": fresh,
            "approve": approve, "tool_timeout": tool_timeout, "max_calls": max_calls,
        }
        usual = inspect.signature(CellblockExecutor).parameters
        given = {name: value for name, value in own.items() if value != usual[name].default}
        self.keywords: Mapping[str, Any] = {**given, **sandbox}  # with which it can be made again
        self.authorized_imports = sorted(set(BASE_BUILTIN_MODULES) | set(additional_authorized_imports))
        self.max_print_outputs_length = max_print_outputs_length or PRINTED
        self.fresh = fresh
        self.state: dict[str, Any] = {"_print_outputs": ""}
        self.images: list[Any] = []  # of the latest step
        self._untold: list[Any] = []  # those of them that no step of the agent has yet
        self.last: Optional[Result] = None
        self._limits = Limits(timeout=tool_timeout, approve=self._asks(approve), max_calls=max_calls)
        self._base, self._keywords = base, dict(sandbox, timeout=timeout)
        self._tools: dict[str, _AgentTool] = {}
        self._names: list[str] = []  # of the tools that are defined inside
        self._variables: dict[str, Any] = {}
        self._sandbox: Optional[Sandbox] = None
        self._ready = self._broken = False
        self._watched = False  # the tools' names are looked after inside, around each cell
        self._clean: Any = None  # what the kernel says of the state CLEAN: another one by that name is not it
        self._pixels = _Pixels()
        self._changed = True  # tools or variables are to be sent
        self._sent = 0  # the number of the cell that has brought them
        self._final: list[Any] = []  # the first answer that a step gave
        self._lock = threading.Lock()

    # smolagents' interface

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """What the code may call, by name: Tools and managed agents. They run here."""
        self._refuse_own_cell()
        made = {}
        for name, tool in tools.items():
            limits = Limits() if name == "final_answer" else self._limits
            made[name] = _AgentTool(name, tool, limits, lambda: self._final, self._pixels)
        self._tools = made
        if self._sandbox is None:
            with self._lock:
                self._start()  # what is wrong with host, policy or imports is said to the caller, not to the model
            return
        sandbox = self._sandbox
        self._changed = True
        try:
            sandbox._call(lambda: sandbox._a._replace_tools(list(made.values()) or [_nothing]))
        except SandboxError:
            if not self._look_after_loss():
                raise

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Variables of the code. TypeError names one that can't be carried, and then none is sent."""
        self._refuse_own_cell()
        packed = {}
        for name, value in variables.items():
            try:
                packed[name] = pack(value)
            except (TypeError, ValueError, RecursionError) as e:
                raise TypeError(
                    f"the variable {name!r} can't be sent into the sandbox: {e}. It can be JSON, bytes, numpy arrays, "
                    "PIL images, dates, decimals, paths, and tuples, sets and dicts of these"
                ) from None
        if self.fresh == "run" and self._sandbox is not None:
            self._variables, self._ready = {}, False
            self._sandbox.reset()
        self._variables.update(packed)
        self._changed = True

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs a step. ExecutionError where its code fails; what it had printed is in `state["_print_outputs"]`."""
        self._refuse_own_cell()
        with self._lock:
            return self._step(code_action)

    def cleanup(self) -> None:
        """Ends the jail. A later step starts another."""
        sandbox, self._sandbox, self._ready = self._sandbox, None, False
        if sandbox is not None:
            sandbox.close()

    # beyond it

    def __enter__(self) -> CellblockExecutor:
        return self

    def __exit__(self, *_error: object) -> None:
        self.cleanup()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, started: its files, checkpoints and usage."""
        self._start()
        assert self._sandbox is not None
        return self._sandbox

    def reset(self) -> None:
        """No variable, file of /tmp or import is left; tools and what `send_variables` has sent come again."""
        if self._sandbox is not None:
            self._ready = False
            self._sandbox.reset()

    def show_images(self, step: Any, agent: Any = None) -> None:
        """A step callback: the pictures that the step has shown become its observations_images, for the model.

        Each goes to one step: the callback is also called for those that ran no code.
        """
        if isinstance(step, ActionStep) and self._untold:
            step.observations_images = [*(step.observations_images or []), *self._untold]
            self._untold = []

    # a step

    def _step(self, code: str) -> CodeOutput:
        anew = ANEW if self._broken else ""
        self.images, self._untold, self.state["_print_outputs"], self.last = [], [], "", None
        self._start()
        assert self._sandbox is not None
        try:
            if self.fresh == "step":
                anew = self._go_back() or anew
            if self._changed or self.fresh == "step":
                self._send()
            elif not self._watched:  # then the names of tools are looked after here
                anew += self._tell("keep", []).stderr
        except SandboxError:
            self._look_after_loss()
            raise
        self._final = []
        try:
            self.last = result = self._sandbox.run(code)
        except SandboxError:
            self._ready, self._broken = False, True  # the next step starts a jail of its own
            raise
        shown = plain(result.stdout) + plain(result.stderr)  # smolagents prints it as it is
        logs = plain(anew) + truncate_content(shown, self.max_print_outputs_length)
        self.state["_print_outputs"] = logs
        self.images = _pictures(result)
        self._untold = list(self.images)
        if result.state == "lost" or (self.fresh != "step" and any(n <= self._sent for n in result.undone)):
            self._ready = False  # it lacks tools or variables; each step with fresh="step" begins anew
        if self._final:
            return CodeOutput(self._final[0], logs, True)
        if not result.ok:
            raise ExecutionError(_failure(code, result), result)
        return CodeOutput(_output(result), logs, False)

    def _go_back(self) -> str:
        """To the state without variables. Where that is gone, or is another's by now, a new jail has it: the text says
        so. What a cell can do to it is to be seen in when it was made, whatever the names of checkpoints are."""
        assert self._sandbox is not None
        with contextlib.suppress(CheckpointError):  # it took over for lack of memory, say, and could not be copied
            self._sandbox.rollback(CLEAN)
            if self._checkpoint() == self._clean:
                return ""
        self._ready, self._broken = False, True
        self._start()
        return ANEW

    def _checkpoint(self) -> Any:
        assert self._sandbox is not None
        known = self._sandbox.checkpoints()
        return next(((c.get("created"), c.get("execution_count")) for c in known if c.get("name") == CLEAN), None)

    def _refuse_own_cell(self) -> None:
        """ToolError in a tool that a step of this executor waits for: it would wait for itself, with other tools."""
        if self._sandbox is not None and self._sandbox._a._session._serves() is not None:
            raise ToolError(
                "this executor runs the step that has called this tool or managed agent, and that waits for it: give "
                "each agent an executor of its own"
            )

    def _start(self) -> None:
        if self._ready:
            return
        first = self._sandbox is None
        try:
            self._make_ready()
        except BaseException:
            if first:
                self.cleanup()  # the next run says it again
            else:
                self._broken = True  # the next step starts a jail of its own
            raise
        self._ready = True

    def _make_ready(self) -> None:
        if self._sandbox is None:
            imports = None if "*" in self.authorized_imports else self.authorized_imports
            self._sandbox = Sandbox(self._base, imports=imports, tools=list(self._tools.values()) or [_nothing],
                                    **self._keywords)
        elif self._broken:
            self._sandbox.reset()
        self._broken = False
        modules = sorted({name.split(".")[0] for name in self.authorized_imports if name != "*"})
        code = _BEGIN.format(sys=imported("sys"), types=imported("types"), find=imported("importlib.util"),
                             module=MODULE, source=INSIDE, modules=modules)
        self._run(code)
        found = self._sandbox.get("_found")
        self._run("del _found")
        missing, self._watched = found["missing"], found["watched"] is True
        if missing:
            raise ExecutionError(f"Non-installed authorized modules: {', '.join(missing)}. Install them for the "
                                 "interpreter that the sandbox jails (python=), or take them off the list of imports")
        self._names, self._changed = [], True
        if self.fresh == "step":
            self._sandbox.checkpoint(CLEAN)
            self._clean = self._checkpoint()

    def _send(self) -> None:
        sent = self._tell("install", [[tool.inside() for tool in self._tools.values()], self._names])
        self._names = list(self._tools)
        if self._variables:
            sent = self._tell("put", [self._variables])
        self._changed, self._sent = False, sent.execution_count or 0

    def _tell(self, function: str, arguments: list[Any]) -> Result:
        return self._run(code_to_call(MODULE, function, arguments))

    def _run(self, code: str) -> Result:
        assert self._sandbox is not None
        result = self._sandbox.run(code)
        if not result.ok:
            raise SandboxError(f"the sandbox could not be made ready for the agent: {result.error}")
        return result

    def _look_after_loss(self) -> bool:
        """Whether the kernel is lost: then the next step starts a jail of its own, which gets tools and variables."""
        if self._sandbox is None or self._sandbox._a._session._lost is None:
            return False
        self._ready, self._broken = False, True
        return True

    def _asks(self, approve: Optional[Approve]) -> Optional[Approve]:
        """`approve` sees the tool by the agent's name for it."""
        if approve is None:
            return None
        asked = approve
        return lambda call: asked(dataclasses.replace(call, tool=call.tool[len(HOST) :]))


def _output(result: Result) -> Any:
    """The last expression: as data where that says the same as its text, for JSON has no tuples.
    Text is plain: smolagents prints it."""
    value = result.value
    if not result.has_value or (isinstance(value, (list, dict)) and "".join(str(value).split()) != "".join(
        (result.repr or "").split()
    )):
        value = result.repr
    return plain(value) if isinstance(value, str) else value


def _failure(code: str, result: Result) -> str:
    """What the model reads, in LocalPythonExecutor's words where they fit."""
    error = result.error
    what = str(error or "the code failed")
    lines = code.splitlines()
    where = [int(n) for n in re.findall(r"(?:^|[^\w])line (\d{1,9})\b", error.traceback if error is not None else "")]
    shown = lines[where[0] - 1].strip() if where and 0 < where[0] <= len(lines) else ""
    text = f"Code execution failed at line '{shorten(shown, 200)}' due to: {what}" if shown else what
    if result.fault == "infrastructure":
        text = f"The sandbox failed, not the code: {what}"
    return shorten(text, 4000)


def _pictures(result: Result) -> list[Any]:
    """PIL images of what the step has shown; the jail made them, so only what Pillow reads as PNG or JPEG counts, as
    long as there is room for its pixels."""
    from PIL import Image

    found, room = [], Room()
    for picture in result.images:
        if picture.mime in ("image/png", "image/jpeg"):
            try:
                image = Image.open(io.BytesIO(picture.data), formats=["PNG", "JPEG"])
                room.take(image)
                image.load()
            except Exception:  # of any kind: what is no picture, or too large, is left out
                continue
            found.append(image)
    return found


class CellblockCodeAgent(CodeAgent):  # type: ignore[misc, unused-ignore]
    """A CodeAgent whose code runs in a CellblockExecutor, also after it was saved and loaded by this class.

    smolagents does not save a custom executor: a CodeAgent that was given one says `executor_type: "local"` in its
    to_dict(), and the reloaded agent runs unjailed. This one says "cellblock", which CodeAgent refuses to load, and the
    executor's keywords. `executor_unsaved` are those that JSON does not have, like `approve`. Without `executor` one is
    made of `executor_kwargs`.
    """

    def create_python_executor(self) -> PythonExecutor:
        """Where none is given: CodeAgent's own would be no jail."""
        if self.executor_type != "local":  # what CodeAgent has where nothing is said
            raise ValueError(f"executor_type is {self.executor_type!r}, smolagents' own choice of executors: give "
                             "executor=CellblockExecutor(…)")
        said = {"max_print_outputs_length": self.max_print_outputs_length, **self.executor_kwargs}
        return CellblockExecutor(_extra(self.authorized_imports), **said)

    def to_dict(self) -> dict[str, Any]:
        said: dict[str, Any] = super().to_dict()
        executor = self.python_executor
        keywords = executor.keywords if isinstance(executor, CellblockExecutor) else self.executor_kwargs
        said["executor_type"], said["executor_kwargs"], said["executor_unsaved"] = "cellblock", {}, []
        for name, value in keywords.items():
            try:
                plain = dict(value) if isinstance(value, Mapping) else value
                said["executor_kwargs"][name] = json.loads(json.dumps(plain, default=os.fspath))
            except (TypeError, ValueError):
                said["executor_unsaved"].append(name)
        return said

    @classmethod
    def from_dict(cls, agent_dict: Mapping[str, Any], **kwargs: Any) -> CellblockCodeAgent:
        """The agent again, jailed as before, and so are its managed agents. ValueError: one of them was not saved by
        this class, or without all keywords of its executor.

        Keywords are this agent's alone, but for `model`. `executor=` and `managed_agents=` override what was saved.
        """
        if kwargs.get("executor") is None:
            kwargs["executor"], kwargs["executor_kwargs"] = _saved_executor(agent_dict)
            kwargs.setdefault("step_callbacks", [kwargs["executor"].show_images])
        if "managed_agents" not in kwargs:
            kwargs["managed_agents"] = cls._managed(agent_dict, kwargs)
        plain = {**agent_dict, "executor_type": "local", "managed_agents": []}
        kwargs.setdefault("executor_type", "local")
        made = super().from_dict(plain, **kwargs)
        assert isinstance(made, cls)
        return made

    @classmethod
    def from_folder(cls, folder: Union[str, "os.PathLike[str]"], **kwargs: Any) -> CellblockCodeAgent:
        """What `save` has written, as `from_dict` has it."""
        return cls.from_dict(_in_folder(pathlib.Path(folder)), **kwargs)

    @classmethod
    def _managed(cls, agent_dict: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The managed agents, each with an executor of its own: smolagents would give them the manager's, or none."""
        model = {"model": kwargs["model"]} if "model" in kwargs else {}
        made = []
        for said in agent_dict.get("managed_agents") or []:
            kind = AGENT_REGISTRY.get(said["class"])
            if said.get("executor_type") == "cellblock":
                made.append(cls.from_dict(said, **model))
            elif kind is None:
                raise ValueError(f"the managed agent {said.get('name')!r} is a {said['class']}, which smolagents can't "
                                 "load: give managed_agents=[…]")
            elif issubclass(kind, CodeAgent) and said.get("executor_type") in (None, "local"):
                raise ValueError(f"the managed agent {said.get('name')!r} was saved as a CodeAgent, without the "
                                 "executor that it may have had, and would run unjailed: make it with code_agent, or "
                                 "give managed_agents=[…]")
            else:
                plain = {**said, "managed_agents": []}
                made.append(kind.from_dict(plain, managed_agents=cls._managed(said, model), **model))
        return made


def _saved_executor(agent_dict: Mapping[str, Any]) -> tuple[CellblockExecutor, dict[str, Any]]:
    """The executor of an agent that CellblockCodeAgent has saved, and its keywords."""
    if agent_dict.get("executor_type") != "cellblock":
        raise ValueError(
            f"this agent was saved with executor_type {agent_dict.get('executor_type')!r}, not by "
            "CellblockCodeAgent: give executor=CellblockExecutor(…), or it would run unjailed"
        )
    unsaved = agent_dict.get("executor_unsaved")
    if unsaved:
        raise ValueError(
            f"this agent ({agent_dict.get('name') or 'without a name'}) was saved without its executor's "
            f"{', '.join(unsaved)}, which can't be saved: give executor=CellblockExecutor(…) with them. A managed "
            "agent is loaded so first, and its manager is given managed_agents=[…]"
        )
    options = dict(agent_dict.get("executor_kwargs") or {})
    return CellblockExecutor(_extra(agent_dict.get("authorized_imports")), **options), options


def _in_folder(folder: pathlib.Path) -> dict[str, Any]:
    """What `save` has written into a folder, as to_dict() has it."""
    said: dict[str, Any] = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
    tools = [(name, folder / "tools" / f"{name}.py") for name in said["tools"]]
    if (said.get("model") or {}).get("class") == "HfApiModel":  # its name in older smolagents
        said["model"]["class"] = "InferenceClientModel"
    said["tools"] = [{"name": name, "code": code.read_text(encoding="utf-8")} for name, code in tools]
    said["managed_agents"] = [_in_folder(folder / "managed_agents" / name) for name in said["managed_agents"]]
    return said


def _extra(imports: Optional[Sequence[str]]) -> list[str]:
    return sorted(set(imports or ()) - set(BASE_BUILTIN_MODULES))


def code_agent(
    tools: Sequence[Any], model: Any, *, additional_authorized_imports: Sequence[str] = (),
    executor: Union[None, CellblockExecutor, Mapping[str, Any]] = None, **agent: Any,
) -> CellblockCodeAgent:
    """A smolagents CodeAgent whose code is jailed, with one list of imports for its prompt and for the jail.

    `executor`: keywords of CellblockExecutor (`{"memory": "1G", "fresh": "run"}`), or one that was made. Pictures that
    a step shows go to the model. Other keywords are CodeAgent's.
    """
    if not isinstance(executor, CellblockExecutor):
        executor = CellblockExecutor(additional_authorized_imports, **dict(executor or {}))
    elif set(_extra(executor.authorized_imports)) != set(_extra(additional_authorized_imports)):
        raise ToolError("the executor has another list of imports than the agent: give both the same")
    for word in ("executor_type", "executor_kwargs"):
        if word in agent:
            raise ValueError(f"{word} is smolagents' own choice of executors: give executor={{…}}")
    callbacks = agent.pop("step_callbacks", None)
    if isinstance(callbacks, Mapping):
        warnings.warn("step_callbacks is a dict: add executor.show_images to it, if the model shall see pictures",
                      stacklevel=2)
        callbacks = dict(callbacks)
    else:
        callbacks = [*(callbacks or []), executor.show_images]
    return CellblockCodeAgent(
        tools=list(tools), model=model, additional_authorized_imports=list(additional_authorized_imports),
        executor=executor, executor_kwargs=dict(executor.keywords), step_callbacks=callbacks, **agent,
    )


__all__ = ["Call", "CellblockCodeAgent", "CellblockExecutor", "ExecutionError", "code_agent"]
