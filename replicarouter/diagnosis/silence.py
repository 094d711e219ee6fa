"""A router that does not answer those who look at it."""

from dataclasses import dataclass

from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, length, number

MOST = 0.5
"""Share of the looks without an answer above which those that had one are the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """How many of the looks got no answer, and what became of the last that did not; `ago` is in seconds
    since the last answer, and 0 when that was the last look's."""

    looks: int
    missed: int = 0
    why: str = ""
    ago: float = 0.0

    @property
    def gone(self) -> bool:
        """Whether the last look got no answer."""
        return self.ago > 0


def router_silent(seen: Attendance) -> Verdict | None:
    """The last look got no answer, or most of them did not."""
    if not seen.gone and seen.missed <= MOST * seen.looks:
        return None
    evidence = [f"no answer at {number(seen.missed)} of {counted(seen.looks, 'look')} ({seen.why})"]
    if seen.gone:
        evidence.append(f"the last answer came {length(seen.ago)} ago")
    return Verdict(
        "router_silent",
        Side.ROUTER,
        "The router does not answer" if seen.gone else "The router does not answer most of the time",
        tuple(evidence),
        "look at its log and its process (`journalctl --unit replicarouter`, `systemctl status "
        "replicarouter`): whether it is there, has been stopped, and gets its share of a CPU",
    )
