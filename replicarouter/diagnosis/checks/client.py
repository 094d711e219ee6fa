"""Clients that do not keep the router busy, or leave."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, number, percent

ENOUGH = 0.9
"""Share of the expected requests in flight that is as good as all: between an answer and its next request a
user is nowhere, be it one user of a few."""

UPLOADING = 0.25
"""Share of the requests in flight whose bodies still arrive from which on uploads take a good part of the
time."""

FEW = 4
"""Requests below which a share says nothing."""

LEAVE = 0.2
"""Share of the requests that ended because their client left from which on it is worth knowing."""


def client_limited(case: Case) -> Iterator[Verdict]:
    """Fewer requests are in flight than the client means to have, and the router holds none back."""
    expected = case.expected.concurrency
    seen = case.accepted.median
    if not expected or seen >= min(ENOUGH * expected, expected - 1):
        return
    if case.held(case.queued) or case.held(case.waiting_for_slot):
        return
    evidence = [
        f"{number(seen)} requests in flight, {number(expected)} expected",
        f"waiting in the router: {number(case.queued.median + case.waiting_for_slot.median)}",
    ]
    connections = case.window.last.value("client_connections")
    cure = "let the client send more at once: its connection pool, its worker count or its own rate limit"
    if connections is not None:
        evidence.append(
            f"clients have {counted(connections, 'connection')} open, those that read metrics included"
        )
        if connections >= ENOUGH * expected:
            cure = (
                "the client has its connections but does not use them: look at what it does between requests"
            )
        elif connections >= ENOUGH * seen > 0:
            cure = (
                f"let the client open at least {number(expected)} connections (aiohttp and httpx stop at 100 "
                "by default), and run as many workers"
            )
    yield Verdict(
        "client_limited",
        Side.ELSEWHERE,
        "The client sends fewer requests than it was meant to",
        tuple(evidence),
        cure,
        setting="client concurrency",
    )


def slow_uploads(case: Case) -> Iterator[Verdict]:
    """Much of what is in flight has not even arrived."""
    arriving = case.window.course("requests_receiving")
    if arriving.floor < max(FEW, UPLOADING * case.accepted.median):
        return
    yield Verdict(
        "slow_uploads",
        Side.ELSEWHERE,
        "Requests arrive slowly",
        (f"receiving {number(arriving.median)} of {number(case.accepted.median)} in flight",),
        "look at the clients' uplink and at the size of their bodies",
    )


def clients_leave(case: Case) -> Iterator[Verdict]:
    """Many requests end because their client has gone."""
    ended = case.window.growth("requests_total")
    gone = case.window.growth("requests_total", outcome="client_gone")
    if gone < FEW or gone < LEAVE * ended:
        return
    yield Verdict(
        "clients_leave",
        Side.NOTE,
        "Clients leave before their answers are whole",
        (f"{number(gone)} of {number(ended)} requests that ended ({percent(gone / ended)})",),
        "look at the clients' timeouts",
    )
