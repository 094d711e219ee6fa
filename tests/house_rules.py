"""The rules of the house: each is a function from a module to what is wrong with it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "replicarouter"

OPEN_TO_ALL = ("errors", "clock", "tasks", "cells", "settings", "words")
"""These may be imported from everywhere, and import only each other."""

MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS, MOST_BRANCHES = 400, 60, 6, 12

AWAITING = {"telemetry.lag"}
"""Quiet modules that wait, and so need asyncio; all of admission does."""

LOUD_IMPORTS = {
    *("aiohttp", "asyncio", "http.client", "requests", "selectors", "signal", "socket", "ssl"),
    *("subprocess", "threading", "urllib.request", "uvloop"),
}
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "time", "time_ns"}

PUBLIC_AIOHTTP = {"aiohttp", "aiohttp.hdrs", "aiohttp.web"}
INTERNALS = (
    *("fleet.fetch", "fleet.one_step", "proxy.aiohttp_connector", "proxy.aiohttp_errors"),
    *("proxy.aiohttp_internals", "proxy.aiohttp_payload", "proxy.aiohttp_server", "proxy.asyncio_internals"),
)
AIOHTTP_BESIDES = {
    ("proxy.arriving", "aiohttp.http_exceptions"): "the errors that reading a broken body raises",
    ("proxy.arriving", "aiohttp.web_protocol"): "the same: its error class has no public name",
    ("proxy.upstream", "aiohttp.client_reqrep"): "names the type of the connector's key",
    ("proxy.upstream", "aiohttp.connector"): "Connection is documented, but not exported at the top",
}

CATCH_ALL = {"admin.api", "proxy.aiohttp_internals", "proxy.handler", "tasks"}
"""Modules with one place that may catch every exception; no more than four."""

DYNAMIC_GETATTR = {"settings.scope": "walks the fields of the settings tree, whatever they are"}

TESTED_ELSEWHERE = {
    "__main__": "cli/test_main.py",
    "admin.port": "test_app.py",
    "briefing": "journeys/test_reload.py",
    "cli": "cli/test_main.py",
    "demo.options": "cli/test_demo.py",
    "demo.run": "cli/test_demo.py",
    "engines": "engines/test_contract.py",
    "engines.base": "engines/test_contract.py",
    "plane": "test_app.py",
    "policies": "policies/test_contract.py",
    "policies.base": "policies/test_contract.py",
    "proxy.aiohttp_server": "proxy/test_aiohttp_internals.py",
    "proxy.caller": "journeys/test_streaming.py",
    "proxy.courier": "journeys/test_refusals.py",
    "proxy.errand": "journeys/test_refusals.py",
    "proxy.session": "proxy/test_aiohttp_internals.py",
    "warden": "test_app.py",
    "workers.crew": "journeys/test_workers.py",
    "workers.keeper": "journeys/test_workers.py",
    "workers.worker": "journeys/test_workers.py",
    "simulator": "simulator/test_engine.py",
    "telemetry.sources": "telemetry/test_collector.py",
}


@dataclass(frozen=True, slots=True)
class Module:
    """One module: its dotted name below the package ("" is the package itself), and what it says."""

    name: str
    source: str
    tree: ast.Module

    @classmethod
    def of(cls, name: str, source: str) -> "Module":
        return cls(name, source, ast.parse(source))

    @property
    def room(self) -> str:
        return room_of(self.name)


def room_of(name: str) -> str:
    first = name.split(".", maxsplit=1)[0]
    return "settings" if first.startswith("settings") else first


def read_modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module.of(name, path.read_text(encoding="utf-8"))


MODULES = {module.name: module for module in read_modules()}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the floor plan: what a room may import, and which of its modules do I/O."""

    may_import: frozenset[str]
    loud: frozenset[str] | None


def read_floor_plan(text: str) -> dict[str, Row]:
    """Read the table of the package's README; `loud` is None where a whole room does I/O."""
    plan: dict[str, Row] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.fullmatch(r"`(\w+)(?:/|\.py)`", cells[0])
        if name is None or len(cells) != 4:
            continue
        named = frozenset(re.findall(r"`(\w+)`", cells[2]))
        may_import = named
        if cells[2].startswith("all above"):
            may_import = frozenset(plan) - named
        elif cells[2] == "everything":
            may_import = frozenset({*plan, *(room_of(module) for module in MODULES)})
        loud = frozenset(f"{name[1]}.{stem}" for stem in re.findall(r"`(\w+)\.py`", cells[3]))
        plan[name[1]] = Row(may_import, loud if loud or cells[3] == "no" else None)
    return plan


PLAN = read_floor_plan((PACKAGE / "README.md").read_text(encoding="utf-8"))


def imports(module: Module) -> Iterator[str]:
    """What a module imports, dotted, with those for type checkers; `from a import b` gives `a.b`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}: import by the absolute name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


# The rules


def forbidden_rooms(module: Module) -> Iterator[str]:
    if module.room == "__main__":
        return
    row = PLAN.get(module.room)
    allowed = {module.room, *OPEN_TO_ALL, *(row.may_import if row else ())}
    for name in imports(module):
        parts = name.split(".")
        if parts[0] != "replicarouter" or len(parts) == 1 or parts[1].startswith("__"):
            continue
        if (room := room_of(parts[1])) not in allowed:
            yield f"imports {name}: the floor plan does not let {module.room} know {room}"


def noise(module: Module) -> Iterator[str]:
    row = PLAN.get(module.room)
    if row is None or row.loud is None or module.name in row.loud:
        return
    waits = module.room == "admission" or module.name in AWAITING
    for name in imports(module):
        if within(name, LOUD_IMPORTS - ({"asyncio"} if waits else set())):
            yield f"imports {name}, but this is a quiet room: let a room with I/O hand in what is needed"
        if name.startswith("random.") and name != "random.Random":
            yield f"imports {name}: take a seeded Random as a parameter"
        if name.startswith("time.") and name.removeprefix("time.") in CLOCKS:
            yield f"imports {name}: take a Clock as a parameter"
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr=attribute) if attribute in CLOCKS:
                yield f"line {node.lineno}: time.{attribute}: take a Clock as a parameter"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="random"), attr=attribute)):
                if attribute != "Random" and "random" in imports(module):
                    yield f"line {node.lineno}: random.{attribute}: take a seeded Random as a parameter"


def private_names(module: Module) -> Iterator[str]:
    if module.name in INTERNALS:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiohttp"):
            source = node.module or ""
            if source not in PUBLIC_AIOHTTP and (module.name, source) not in AIOHTTP_BESIDES:
                yield f"line {node.lineno}: {source} is not public: it belongs into proxy.aiohttp_*"
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            if not own:
                yield f"line {node.lineno}: {node.attr} is private to another object"


def lines_too_many(module: Module) -> Iterator[str]:
    count = module.source.count("\n")
    if count > MOST_LINES:
        yield f"{count} lines, at most {MOST_LINES}: split it by reason to change"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> Iterator[Function]:
    yield from (node for node in ast.walk(module.tree) if isinstance(node, Function))


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def oversized_functions(module: Module) -> Iterator[str]:
    for function in functions(module):
        first = function.body[0]
        documented = ast.get_docstring(function) is not None
        docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
        length = (function.end_lineno or 0) - function.lineno + 1 - docstring
        if length > MOST_FUNCTION_LINES:
            yield f"{function.name} has {length} lines, at most {MOST_FUNCTION_LINES}: name its parts"


def long_signatures(module: Module) -> Iterator[str]:
    for function in functions(module):
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([name for name in names if name not in {"self", "cls"}])
        if count > MOST_PARAMETERS:
            yield f"{function.name} takes {count} parameters, at most {MOST_PARAMETERS}: make a value of them"


def branching(module: Module) -> Iterator[str]:
    kinds = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp)
    for function in functions(module):
        count = 0
        for node in own_nodes(function):
            count += isinstance(node, (*kinds, ast.comprehension, ast.match_case))
            count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        if count > MOST_BRANCHES:
            yield f"{function.name} has {count} branches, at most {MOST_BRANCHES}: use a table or a part"


def missing_sign(module: Module) -> Iterator[str]:
    docstring = ast.get_docstring(module.tree)
    if not docstring:
        yield "has no docstring: say in 1 to 4 lines what is here"
    elif docstring.count("\n") > 3:
        yield "has a docstring of more than 4 lines: say what is here, not how"


def globals_used(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"line {node.lineno}: global {', '.join(node.names)}: keep it in an object"


def probing(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "getattr" and len(node.args) == 2 and module.name in DYNAMIC_GETATTR:
                continue
            if node.func.id in {"hasattr", "getattr"}:
                yield f"line {node.lineno}: {node.func.id}: rely on the type"


def caught_all(module: Module) -> list[int]:
    """Lines that catch every exception, those aside that raise it again."""
    found = []
    for node in ast.walk(module.tree):
        match node:
            case ast.ExceptHandler(type=None | ast.Name(id="Exception" | "BaseException"), body=body):
                again = any(isinstance(one, ast.Raise) for part in body for one in ast.walk(part))
                if not (again and isinstance(node.type, ast.Name) and node.type.id == "BaseException"):
                    found.append(node.lineno)
            case ast.Call(func=ast.Name(id="suppress"), args=[ast.Name(id="Exception" | "BaseException")]):
                found.append(node.lineno)
    return found


def catching_all(module: Module) -> Iterator[str]:
    for line in caught_all(module)[1 if module.name in CATCH_ALL else 0 :]:
        yield f"line {line} catches every exception: name those that are meant"


def untested(module: Module) -> Iterator[str]:
    folder, _, stem = module.name.rpartition(".")
    file = TESTED_ELSEWHERE.get(module.name) or f"{folder.replace('.', '/')}/test_{stem}.py".lstrip("/")
    says_something = any(isinstance(node, Function | ast.ClassDef) for node in module.tree.body)
    if says_something and module.name and not (ROOT / "tests" / file).is_file():
        yield f"has no test: write tests/{file}"


def loose_tasks(module: Module) -> Iterator[str]:
    if module.name == "tasks":
        return
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(attr="create_task" | "ensure_future" | "TaskGroup" as name):
                yield f"line {node.lineno}: {name}: start it in a TaskSet"
            case ast.Name(id="create_task" | "ensure_future" | "TaskGroup" as name):
                yield f"line {node.lineno}: {name}: start it in a TaskSet"
