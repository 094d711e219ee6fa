"""Where the router's counts and the engines' disagree for longer than a reading is old."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case, Member
from replicarouter.diagnosis.checks.stall import stalled_now
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, names, number, percent, whole

FEW = 3
"""Requests that may be on their way between the router and the scheduler at any moment."""

SHARE = 0.1
"""The same as a share of what the replica has: the more it has, the more come and go while it is read."""

ONE_LOOK = 2
"""Times as many where there is a single page: it may show any moment, a window shows what lasts."""

ON_THE_WAY_OUT = 0.5
"""Share of what no scheduler knows from which on it is streams that engines have ended: requests on their way
in have no response head yet."""

SLOW_READERS = (
    "look at the clients: more answers are streaming than engines work on, so that they are taken slowly, or "
    "the engine's frontend sends them late (--api-server-count)"
)
SLOW_FRONTEND = (
    "give the engine's frontend more processor time: tokenizer and API server run in one process "
    "(--api-server-count)"
)


def foreign_traffic(case: Case) -> Iterator[Verdict]:
    """Engines work on more than the router has sent them, at every look."""
    found = [
        member
        for member in case.members
        if member.unexplained is not None and -member.unexplained.ceiling >= _tolerance(case, member)
    ]
    if not found:
        return
    count = sum(-member.unexplained.median for member in found if member.unexplained is not None)
    ours = sum(member.with_engine.median for member in found)
    have = "it runs or queues" if len(found) == 1 else "they run or queue"
    yield Verdict(
        "foreign_traffic",
        Side.ELSEWHERE,
        "Someone else sends requests to the engines",
        (
            (
                f"unexplained −{number(count)} at {names([member.name for member in found])}: {have} "
                f"{number(count)} more than the {number(ours)} from here"
            ),
        ),
        "send all traffic through this router, or take what others use out of its fleet",
        replica=found[0].name if len(found) == 1 else "",
    )


def held_before_scheduler(case: Case) -> Iterator[Verdict]:
    """Requests were sent and their scheduler does not know them, at every look."""
    stalled = stalled_now(case)
    found = [
        member
        for member in case.members
        if member.unexplained is not None
        and member.name not in stalled
        and member.unexplained.floor >= _tolerance(case, member)
    ]
    if not found:
        return
    count = sum(member.unexplained.median for member in found if member.unexplained is not None)
    ours = sum(member.with_engine.median for member in found)
    streams = case.window.courses("replica", "requests_outstanding", stage="streaming")
    streaming = sum(streams[member.name].median for member in found if member.name in streams)
    known = sum(_in_engine(member) for member in found)
    slow_readers = streaming - known >= ON_THE_WAY_OUT * count
    yield Verdict(
        "held_before_scheduler",
        Side.ELSEWHERE,
        "Requests are held between the router and the engines' schedulers",
        (
            (
                f"unexplained +{number(count)} of {number(ours)} with {counted(len(found), 'replica')} "
                f"({percent(count / max(1.0, ours))}): {names([member.name for member in found])}"
            ),
            (
                f"without a response head: {number(whole(ours) - whole(streaming))}; streaming: "
                f"{number(streaming)}, and the engines run or queue {number(known)}"
            ),
        ),
        SLOW_READERS if slow_readers else SLOW_FRONTEND,
        setting="" if slow_readers else "api_server_count",
        replica=found[0].name if len(found) == 1 else "",
    )


def _in_engine(member: Member) -> float:
    return sum(course.median for course in (member.running, member.waiting) if course is not None)


def _tolerance(case: Case, member: Member) -> float:
    allowed = max(FEW, SHARE * max(_in_engine(member), member.with_engine.median))
    return allowed if case.window.rates else ONE_LOOK * allowed
