"""Requests that are refused, fail or are tried again."""

from collections.abc import Iterable, Iterator, Mapping

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.window import Window
from replicarouter.diagnosis.words import names, number, percent

FAILED = frozenset(
    (
        *("connect_failed", "replica_disconnected", "bad_replica_response", "upstream_error"),
        *("response_head_timeout", "idle_timeout", "total_timeout", "internal_error"),
    )
)
"""Outcomes that are neither success, nor a refusal for want of room, nor the client's own doing. An engine
that says the request is wrong is `upstream_error` too, and told by its status."""

MISTAKEN = "4xx"
"""The class of status that says so."""

SHARE = 0.05
"""Share of the requests that ended from which on failures count: single ones happen in any fleet."""

FEW = 5
"""Requests below which a share says nothing."""

ONE_TO_BLAME = 0.8
"""Share of the failures at one replica from which on it is the one to look at."""

RETRIED = 0.1
"""Retries in relation to new requests from which on they are load that counts."""

REFUSALS = {
    "queue_full": ("admission.max_queued", "--max-queued"),
    "queue_timeout": ("admission.queue_timeout", "--queue-timeout"),
}


def requests_shed(case: Case) -> Iterator[Verdict]:
    """The router refused requests for want of room. That is its own limit unless the engines are full."""
    shed = case.window.growths("reason", "shed_total")
    refused = {reason: shed[reason] for reason in REFUSALS if shed.get(reason, 0.0) > 0}
    if not refused:
        return
    reason = max(refused, key=lambda one: refused[one])
    setting, flag = REFUSALS[reason]
    series = "queue_limit" if reason == "queue_full" else "queue_timeout_seconds"
    now = case.window.last.value(series)
    engines = case.busy(case.takers)
    cure = f"{setting}: now {_plain(now)}; raise it ({flag})" if now else f"{setting}: raise it ({flag})"
    yield Verdict(
        "requests_shed",
        Side.ELSEWHERE if engines else Side.ROUTER,
        "Requests are refused for want of room",
        (
            "; ".join(f"{name}: {number(count)}" for name, count in sorted(refused.items())),
            f"queued {number(case.queued.median)}, waiting in the engines {number(case.waiting.median)}",
        ),
        "add replicas, or send less: the engines have all they can work on" if engines else cure,
        setting="" if engines else setting,
    )


def _plain(value: float) -> str:
    """A setting: seconds may be no whole number."""
    return number(value) if value.is_integer() else f"{value:g}"


def requests_failing(case: Case) -> Iterator[Verdict]:
    """Some share of the requests ends in an error that is not the client's own."""
    window = case.window
    outcomes = window.growths("outcome", "requests_total")
    ended = sum(outcomes.values())
    mistaken = window.growths("replica", "answers_total", kind=MISTAKEN)
    outcomes["upstream_error"] = outcomes.get("upstream_error", 0.0) - sum(mistaken.values())
    failed = {name: count for name, count in outcomes.items() if name in FAILED and count > 0}
    count = sum(failed.values())
    if count < FEW or count < SHARE * ended:
        return
    at = _by_replica(window, failed, mistaken)
    worst = max(at, key=lambda name: at[name])
    alone = bool(worst) and len(case.members) > 1 and at[worst] >= ONE_TO_BLAME * count
    yield Verdict(
        "requests_failing",
        Side.ELSEWHERE,
        f"Requests fail at {worst}" if alone else "Requests fail",
        (
            f"{number(count)} of {number(ended)} requests that ended ({percent(count / ended)})",
            "; ".join(f"{name}: {number(found)}" for name, found in sorted(failed.items())),
        ),
        "see the router's access log for their ids, and the engine's log for the same ids",
        replica=worst if alone else "",
    )


def _by_replica(window: Window, failed: Iterable[str], mistaken: Mapping[str, float]) -> dict[str, float]:
    """Failures at each replica, less what its engine has refused as wrong."""
    at: dict[str, float] = {}
    for outcome in failed:
        less = mistaken if outcome == "upstream_error" else {}
        for name, grown in window.growths("replica", "requests_total", outcome=outcome).items():
            at[name] = at.get(name, 0.0) + grown - less.get(name, 0.0)
    return at


def requests_mistaken(case: Case) -> Iterator[Verdict]:
    """The engines say of many requests that they are wrong."""
    ended = case.window.growth("requests_total")
    mistaken = case.window.growth("answers_total", kind=MISTAKEN)
    if mistaken < FEW or mistaken < SHARE * ended:
        return
    yield Verdict(
        "requests_mistaken",
        Side.NOTE,
        "The engines refuse requests as wrong",
        (f"{number(mistaken)} of {number(ended)} requests that ended ({percent(mistaken / ended)})",),
        "look at what the clients send: the engine's answer says what is wrong with it (a prompt that is too "
        "long, a field it does not know)",
    )


def retries(case: Case) -> Iterator[Verdict]:
    """Many requests are tried on more than one replica."""
    window = case.window
    reasons = {name: count for name, count in window.growths("reason", "retries_total").items() if count}
    again = sum(reasons.values())
    received = window.growth("requests_received_total")
    if again < FEW or again < RETRIED * received:
        return
    yield Verdict(
        "retries",
        Side.ELSEWHERE,
        "Many requests are tried more than once",
        (
            f"{number(again)} retries for {number(received)} requests",
            f"for: {names(sorted(reasons, key=lambda name: -reasons[name]))}",
        ),
        "see ejections and `replicarouter replicas list` for the replica that refuses",
    )
