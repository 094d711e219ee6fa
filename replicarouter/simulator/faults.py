"""Scripted faults: what one may say, checked. No sockets, no clock; `conditions.py` makes them happen."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

Place = int | str
"""Where in an answer a fault strikes: "start" before its first byte, "head" within its head, a number
after so many chunks of its body (0: right after the head)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `KINDS` says what each kind does and which of these fields it takes.

    `count` requests suffer it and then it is over; each is hit with probability `share`, drawn from a
    source seeded with `seed`; after `seconds` it is over in any case. `on` says which requests:
    "generations", "probes" (every GET) or "all".
    """

    kind: str
    seconds: float | None = None
    count: int | None = None
    share: float = 1.0
    seed: int = 0
    on: str = "generations"
    at: Place = "start"
    delay: float = 0.0
    factor: float = 1.0
    status: int = 503
    reason: str = "busy"
    retry_after: float | None = None
    heads: bool = True
    idle: float = 5.0
    every: int = 100
    up: float = 1.0
    down: float = 1.0
    how: str = "health"
    linger: float = 0.05

    def as_json(self) -> dict[str, Any]:
        """The fields that its kind takes."""
        taken = KINDS[self.kind].takes
        return {name: value for name, value in asdict(self).items() if name == "kind" or name in taken}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of fault does, and the fields it takes beside `kind`. `each` request may suffer it by
    itself; otherwise the whole engine does."""

    does: str
    takes: frozenset[str]
    each: bool


def _each(does: str, *names: str) -> Kind:
    return Kind(does, frozenset({"seconds", "count", "share", "seed", "on", *names}), each=True)


def _whole(does: str, *names: str) -> Kind:
    return Kind(does, frozenset({"seconds", *names}), each=False)


KINDS: dict[str, Kind] = {
    "hang": _each("take the request and say nothing (more), for ever", "at"),
    "reset": _each("RST the connection", "at"),
    "close": _each("FIN the connection, without the end of the answer", "at"),
    "garbage": _each("send a malformed head, or after chunks a malformed chunk, and close", "at"),
    "delay": _each("begin the request `delay` seconds late; also `slow` with a `delay`", "delay"),
    "status": _each(
        "answer with an error: 503 for `reason` busy or loading, 429, or any other of 400 to 599",
        *("status", "reason", "retry_after"),
    ),
    "draining": _each("vLLM while it drains: 500, it cannot schedule; what runs is finished"),
    "health_slow": _whole("answer /health `delay` seconds late", "delay"),
    "slow": _whole("every step takes `factor` times as long", "factor"),
    "refuse": _whole("refuse connections; those that are open go on"),
    "flapping": _whole(
        "in turn fine for `up` and not for `down` seconds; `how` health: /health says 503; refuse: the"
        " port refuses",
        *("up", "down", "how"),
    ),
    "frozen": _whole(
        "a hung engine core: probes are answered, gauges and counters stand still, requests get no"
        " token; `heads` false: streams get no head either. Afterwards all goes on",
        "heads",
    ),
    "core_killed": _whole(
        "a dead engine core: streams end with an error event and [DONE], others with 500, /health says"
        " 503 for `linger` seconds, then the port refuses. Afterwards it is a new engine",
        "linger",
    ),
    "sigterm_hang": _whole(
        "vLLM after SIGTERM: the port refuses, idle connections close, open answers are silent for ever."
        " Afterwards it is a new engine"
    ),
    "no_models": _whole("/v1/models lists nothing, generations get 404"),
    "keep_alive": _whole("close connections after `idle` idle seconds", "idle"),
    "connection_close_every": _whole("say `Connection: close` with each `every`-th answer", "every"),
}


LOADING: dict[str, Fault] = {
    "refused": Fault(kind="refuse"),
    "silent": Fault(kind="hang", on="all"),
    "unhealthy": Fault(kind="status", status=503, reason="loading", on="all"),
    "empty": Fault(kind="no_models"),
}
"""What an engine may be like while it loads. vLLM refuses connections until it can serve."""


Check = tuple[Callable[[Any], bool], str]


def _number(least: float, most: float = float("inf")) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _whole_number(least: int, most: float = float("inf")) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _one_of(*accepted: object) -> Check:
    return (lambda value: value in accepted), ", ".join(map(str, accepted))


_CHECKS: dict[str, Check] = {
    "seconds": (_number(1e-3), "more than 0"),
    "count": (_whole_number(1), "1 or more"),
    "share": (_number(0, 1), "0 to 1"),
    "seed": (_whole_number(0), "0 or more"),
    "on": _one_of("generations", "probes", "all"),
    "at": (
        lambda value: value in ("start", "head") or _whole_number(0)(value),
        "start, head, or a number of chunks",
    ),
    "delay": (_number(0), "0 or more seconds"),
    "factor": (_number(1e-3), "more than 0"),
    "status": (_whole_number(400, 599), "400 to 599"),
    "reason": _one_of("busy", "loading"),
    "retry_after": (_number(0), "0 or more seconds"),
    "heads": _one_of(True, False),
    "idle": (_number(1e-3), "more than 0 seconds"),
    "every": (_whole_number(1), "1 or more"),
    "up": (_number(1e-3), "more than 0 seconds"),
    "down": (_number(1e-3), "more than 0 seconds"),
    "how": _one_of("health", "refuse"),
    "linger": (_number(0), "0 or more seconds"),
}

assert {field.name for field in fields(Fault)} == {"kind", *_CHECKS}


def make_fault(said: Mapping[str, object]) -> Fault:
    """The fault that these fields describe; ValueError names what is wrong and what is accepted."""
    kind = said.get("kind")
    if kind == "slow" and "delay" in said:
        kind = "delay"
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; accepted: {', '.join(KINDS)}")
    known = KINDS[kind].takes
    given = {name: value for name, value in said.items() if name != "kind" and value is not None}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{kind} takes no {name}; accepted: {_listed(known)}")
        holds, accepted = _CHECKS[name]
        if not holds(value):
            raise ValueError(f"{name} is {value!r}; accepted: {accepted}")
    fault = Fault(kind=kind, **given)  # type: ignore[arg-type]  # checked by the table above
    if kind == "garbage" and fault.at == "start":
        return Fault(kind=kind, **{**given, "at": "head"})  # type: ignore[arg-type]
    return fault


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
