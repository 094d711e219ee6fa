"""What a check has found: how it ended, why, and the one thing to change. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """How a check ended. Only `FAIL` makes the acceptance fail."""

    PASS = "pass"  # noqa: S105  not a password
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


_BY_WEIGHT = (Status.PASS, Status.SKIPPED, Status.WARN, Status.FAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The end of one check. `why` is written for people, `figures` are what was measured, for `--json`."""

    status: Status
    why: str
    cure: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finding and whose it is: the check's name, the model ("" for the whole fleet), how long it took."""

    name: str
    model: str
    finding: Finding
    seconds: float

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "model": self.model or None,
            "status": self.finding.status.value,
            "why": self.finding.why,
            "cure": self.finding.cure or None,
            "seconds": round(self.seconds, 3),
            "figures": dict(self.finding.figures),
        }


def passed(why: str, **figures: Any) -> Finding:
    """All is as it should be."""
    return Finding(status=Status.PASS, why=why, figures=figures)


def failed(why: str, cure: str = "", **figures: Any) -> Finding:
    """The fleet is not to be accepted like this."""
    return Finding(status=Status.FAIL, why=why, cure=cure, figures=figures)


def warned(why: str, cure: str = "", **figures: Any) -> Finding:
    """Somebody should know this; it may be meant."""
    return Finding(status=Status.WARN, why=why, cure=cure, figures=figures)


def skipped(why: str, cure: str = "") -> Finding:
    """It could not be looked at, or nobody asked."""
    return Finding(status=Status.SKIPPED, why=why, cure=cure)


def worst(findings: Sequence[Finding]) -> Finding:
    """One finding for several: as bad as the worst, with the reasons and cures of those that are as bad."""
    status = max((one.status for one in findings), key=_BY_WEIGHT.index)
    chosen = [one for one in findings if one.status is status]
    return Finding(
        status=status,
        why="; ".join(dict.fromkeys(one.why for one in chosen)),
        cure="; ".join(dict.fromkeys(one.cure for one in chosen if one.cure)),
        figures={name: value for one in findings for name, value in one.figures.items()},
    )
