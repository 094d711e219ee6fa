"""What a check found: whose limit it is, the numbers that show it, and the one thing to change."""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Side(Enum):
    """Who limits: the router or its settings, something else, or nobody (only worth knowing)."""

    ROUTER = "router"
    ELSEWHERE = "elsewhere"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding.

    `code` is its stable name, `evidence` sentences with numbers, `cure` what to change and to what.
    `setting` is the dotted name of a setting, of the router or of the engine, when one cures it;
    `replica` the one replica it is about.
    """

    code: str
    side: Side
    title: str
    evidence: tuple[str, ...]
    cure: str
    setting: str = ""
    replica: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON: all fields, `side` by its value."""
        return {
            "code": self.code,
            "side": self.side.value,
            "title": self.title,
            "evidence": list(self.evidence),
            "cure": self.cure,
            "setting": self.setting,
            "replica": self.replica,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What the person who asks knows and the metrics do not.

    `concurrency`: requests the client means to keep in flight; `cold`: no prompt should be found in a
    prefix cache.
    """

    concurrency: int | None = None
    cold: bool = False
