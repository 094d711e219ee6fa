"""The house rules hold for every module, and each of them can tell a bad one from a good one."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.house_rules import (
    CATCH_ALL,
    MODULES,
    OPEN_TO_ALL,
    PLAN,
    ROOT,
    TESTED_ELSEWHERE,
    Module,
    branching,
    catching_all,
    caught_all,
    forbidden_rooms,
    globals_used,
    lines_too_many,
    long_signatures,
    loose_tasks,
    missing_sign,
    noise,
    oversized_functions,
    private_names,
    probing,
    read_floor_plan,
    room_of,
    untested,
)

Rule = Callable[[Module], Iterator[str]]

KNOWN: Mapping[tuple[Rule, str], str] = {}


def on_every_module(rule: Rule) -> pytest.MarkDecorator:
    def case(name: str) -> Any:
        known = KNOWN.get((rule, name))
        marks = [pytest.mark.xfail(strict=True, reason=known)] if known else []
        return pytest.param(name, marks=marks, id=name or "replicarouter")

    return pytest.mark.parametrize("name", [case(name) for name in MODULES])


def check(rule: Rule, name: str) -> None:
    wrong = list(rule(MODULES[name]))
    assert not wrong, f"replicarouter/{name.replace('.', '/')}: " + "; ".join(wrong)


@on_every_module(forbidden_rooms)
def test_a_room_imports_only_what_the_floor_plan_allows(name: str) -> None:
    check(forbidden_rooms, name)


@on_every_module(noise)
def test_a_quiet_room_does_no_io_and_takes_time_and_chance_as_parameters(name: str) -> None:
    check(noise, name)


@on_every_module(private_names)
def test_what_libraries_do_not_document_stays_in_modules_for_it(name: str) -> None:
    check(private_names, name)


@on_every_module(lines_too_many)
def test_a_module_fits_in_its_lines(name: str) -> None:
    check(lines_too_many, name)


@on_every_module(oversized_functions)
def test_a_function_fits_in_its_lines(name: str) -> None:
    check(oversized_functions, name)


@on_every_module(long_signatures)
def test_a_function_takes_few_parameters(name: str) -> None:
    check(long_signatures, name)


@on_every_module(branching)
def test_a_function_branches_little(name: str) -> None:
    check(branching, name)


@on_every_module(missing_sign)
def test_a_module_says_what_is_in_it(name: str) -> None:
    check(missing_sign, name)


@on_every_module(globals_used)
def test_no_module_has_global_state(name: str) -> None:
    check(globals_used, name)


@on_every_module(probing)
def test_no_module_probes_for_attributes(name: str) -> None:
    check(probing, name)


@on_every_module(catching_all)
def test_exceptions_are_caught_by_name(name: str) -> None:
    check(catching_all, name)


@on_every_module(untested)
def test_a_module_has_its_test_file(name: str) -> None:
    check(untested, name)


@on_every_module(loose_tasks)
def test_tasks_are_started_in_task_sets(name: str) -> None:
    check(loose_tasks, name)


# The tables that the rules go by


def test_every_room_has_a_row_in_the_floor_plan() -> None:
    rooms = {room_of(name) for name in MODULES} - {"", "__main__", *OPEN_TO_ALL}
    assert set(PLAN) == rooms


def test_the_floor_plan_is_read_as_it_is_meant() -> None:
    plan = read_floor_plan(
        "| room | what is here | may import | I/O |\n"
        "|---|---|---|---|\n"
        "| `one/` | the `quiet` one | – | no |\n"
        "| `two/` | a mixed one | `one` | `wire.py` only |\n"
        "| `three.py` | a loud one | all above but `one` | yes |\n"
    )
    assert {name: (sorted(row.may_import), row.loud) for name, row in plan.items()} == {
        "one": ([], frozenset()),
        "two": (["one"], frozenset({"two.wire"})),
        "three": (["two"], None),
    }


def test_at_most_four_places_catch_every_exception() -> None:
    assert len(CATCH_ALL) <= 4
    assert {name for name, module in MODULES.items() if caught_all(module)} == CATCH_ALL


@pytest.mark.parametrize("name", TESTED_ELSEWHERE)
def test_a_module_that_is_tested_elsewhere_exists_and_so_does_its_test(name: str) -> None:
    assert name in MODULES
    assert (ROOT / "tests" / TESTED_ELSEWHERE[name]).is_file()


# Each rule can fail

LONG = "def long():\n" + "    pass\n" * 60
BRANCHING = "def f(a):\n" + "    if a:\n        pass\n" * 13
RECURSIVE = "def f(a):\n    return " + " or ".join("a" for _ in range(14))

BAD = [
    (forbidden_rooms, "policies.fresh", "from replicarouter.proxy.relay import Relay"),
    (forbidden_rooms, "policies.fresh", "import replicarouter.admin.api"),
    (
        forbidden_rooms,
        "protocol.fresh",
        "if TYPE_CHECKING:\n    from replicarouter.fleet.replica import Replica",
    ),
    (forbidden_rooms, "errors", "from replicarouter.exchange import Stage"),
    (forbidden_rooms, "settings.fresh", "from replicarouter.policies import POLICIES"),
    (noise, "policies.fresh", "import aiohttp"),
    (noise, "policies.fresh", "from asyncio import Queue"),
    (noise, "admission.fresh", "import socket"),
    (noise, "fleet.fresh", "from aiohttp import ClientSession"),
    (noise, "protocol.fresh", "import time\nnow = time.monotonic()"),
    (noise, "protocol.fresh", "from time import time"),
    (noise, "policies.fresh", "import random\nchosen = random.choice([1])"),
    (noise, "policies.fresh", "from random import choice"),
    (private_names, "proxy.fresh", "from aiohttp.web_protocol import RequestHandler"),
    (private_names, "proxy.fresh", "limit = connector._limit"),
    (private_names, "proxy.fresh", "class A:\n    def f(self):\n        return self.other._secret"),
    (lines_too_many, "cells", "\n" * 401),
    (oversized_functions, "cells", LONG),
    (long_signatures, "cells", "def f(self, a, b, c, /, d, e, *, f, g): ..."),
    (branching, "cells", BRANCHING),
    (branching, "cells", RECURSIVE),
    (missing_sign, "cells", "x = 1"),
    (missing_sign, "cells", '"""One.\n\nTwo.\nThree.\nFour."""'),
    (globals_used, "cells", "def f():\n    global x\n    x = 1"),
    (probing, "cells", "hasattr(x, 'y')"),
    (probing, "cells", "getattr(x, 'y', None)"),
    (probing, "settings.scope", "getattr(x, name, None)"),
    (catching_all, "cells", "try:\n    f()\nexcept Exception:\n    raise Other"),
    (catching_all, "cells", "try:\n    f()\nexcept:\n    raise"),
    (catching_all, "cells", "try:\n    f()\nexcept BaseException:\n    pass"),
    (catching_all, "cells", "with suppress(Exception):\n    f()"),
    (catching_all, "tasks", "with suppress(Exception):\n    f()\n" * 2),
    (untested, "proxy.fresh", "def f(): ..."),
    (loose_tasks, "proxy.fresh", "import asyncio\nasyncio.create_task(f())"),
    (loose_tasks, "proxy.fresh", "loop.create_task(f())"),
    (loose_tasks, "proxy.fresh", "from asyncio import ensure_future\nensure_future(f())"),
]

GOOD = [
    (forbidden_rooms, "policies.fresh", "from replicarouter.fleet.replica import Replica"),
    (forbidden_rooms, "policies.fresh", "from replicarouter.errors import NoReplica"),
    (forbidden_rooms, "cli.fresh", "from replicarouter import __version__\nimport replicarouter.app"),
    (noise, "fleet.probe", "import aiohttp"),
    (noise, "proxy.fresh", "import aiohttp, asyncio, time\nnow = time.monotonic()"),
    (noise, "admission.fresh", "import asyncio"),
    (noise, "policies.fresh", "from random import Random\ndef f(random: Random): return random.random()"),
    (noise, "telemetry.fresh", "import time\ntext = time.strftime('%Y', time.gmtime(0))"),
    (private_names, "proxy.fresh", "from aiohttp import hdrs, web\nclass A:\n    def f(self): self._own = 1"),
    (private_names, "proxy.aiohttp_internals", "from aiohttp.web_protocol import X\nX._y"),
    (lines_too_many, "cells", "\n" * 400),
    (oversized_functions, "cells", 'def f():\n    """A\n' + "\n" * 60 + '"""\n'),
    (long_signatures, "cells", "def f(self, a, b, c, d, *, e, f): ..."),
    (branching, "cells", "def f(a):\n    def g(a):\n" + "        if a: pass\n" * 12 + "    if a: pass"),
    (missing_sign, "cells", '"""One.\n\nThree.\nFour."""'),
    (probing, "settings.scope", "getattr(x, name)"),
    (catching_all, "cells", "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
    (catching_all, "tasks", "try:\n    f()\nexcept Exception:\n    g()"),
    (untested, "proxy.relay", "def f(): ..."),
    (loose_tasks, "tasks", "import asyncio\nasyncio.create_task(f())"),
]


@pytest.mark.parametrize(("rule", "name", "source"), BAD)
def test_a_rule_sees_what_it_is_there_for(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module.of(name, source)))


@pytest.mark.parametrize(("rule", "name", "source"), GOOD)
def test_a_rule_leaves_alone_what_is_sound(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module.of(name, source))) == []
