"""The worked diagnoses of deploy/diagnoses: what makes each benchmark slow, and what comes first in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replicarouter.loadgen.workload import Workload

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy" / "diagnoses"
PAGE = FOLDER / "README.md"

MODEL = "qwen-27b"
SECONDS = 5
"""From the first page of a case to its second."""

Fault = tuple[int, Mapping[str, object]]
"""The number of an engine, and what is posted to its `/sim/fault`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats(Workload):
    """Streamed chats; with `key` all of them belong to one session."""

    model: str = MODEL
    key: str = ""

    def bodies(self, user: int) -> Iterator[dict[str, Any]]:
        """The requests of one user, without end."""
        named = {"user": self.key} if self.key else {}
        for body in Workload.bodies(self, user):
            yield {**body, **named}


@dataclass(frozen=True, slots=True)
class Crowd:
    """Users in a closed loop. `past`: they go to this engine directly, not through the router."""

    count: int
    chats: Chats = Chats()
    past: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A slow benchmark. `code` is the verdict that comes first, empty for none, `status` the exit status.

    `faults` are there from the start, `late` ones once the load has settled, `pause` seconds before the
    first page. With `rehearsed` the same requests have been sent once before.
    """

    name: str
    code: str
    status: int
    crowds: tuple[Crowd, ...]
    replicas: int = 3
    engine: tuple[str, ...] = ("--max-num-seqs", "64")
    settings: Mapping[str, object] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    late: tuple[Fault, ...] = ()
    pause: float = 0.0
    rehearsed: bool = False

    @property
    def pages(self) -> tuple[Path, Path]:
        """Where its two pages are."""
        return FOLDER / f"{self.name}.before.txt", FOLDER / f"{self.name}.after.txt"

    @property
    def command(self) -> tuple[str, ...]:
        """What `replicarouter` is given, in the folder of the repository."""
        files = (str(page.relative_to(ROOT)) for page in self.pages)
        return ("diagnose", *self.flags, "--from", *files)


CAMPAIGN = (Crowd(256),)
LONG = Chats(prompt_tokens=(600, 1200))

CASES = (
    Case(name="healthy", code="", status=0, crowds=(Crowd(48),), flags=("--expect-concurrency", "48")),
    Case(
        name="connector-limit",
        code="connector_limit",
        status=3,
        crowds=CAMPAIGN,
        replicas=8,
        engine=("--max-num-seqs", "16"),
        settings={"connector": {"limit": 100}},
    ),
    Case(
        name="engine-queues",
        code="engine_queueing",
        status=4,
        crowds=CAMPAIGN,
        replicas=8,
        engine=("--max-num-seqs", "16"),
    ),
    Case(
        name="client-limit",
        code="client_limited",
        status=4,
        crowds=(Crowd(100),),
        flags=("--expect-concurrency", "256"),
    ),
    Case(
        name="admission-limit",
        code="admission_limit",
        status=3,
        crowds=(Crowd(96),),
        settings={"admission": {"max_outstanding_per_replica": 8}},
    ),
    Case(
        name="slow-replica",
        code="slow_replica",
        status=4,
        crowds=(Crowd(48),),
        faults=((1, {"kind": "slow", "factor": 2.5}),),
    ),
    Case(
        name="stalled-replica",
        code="stalled_replica",
        status=4,
        crowds=(Crowd(36),),
        late=((1, {"kind": "frozen"}),),
        pause=6.0,
    ),
    Case(
        name="kv-pressure",
        code="kv_pressure",
        status=4,
        crowds=(Crowd(72, LONG),),
        engine=("--max-num-seqs", "64", "--kv-blocks", "1000", "--block-size", "16"),
    ),
    Case(
        name="hot-session",
        code="load_imbalance",
        status=4,
        crowds=(Crowd(12), Crowd(24, Chats(key="everybody"))),
        engine=("--max-num-seqs", "12"),
        settings={"policy": "session"},
    ),
    Case(
        name="round-robin",
        code="slow_replica",
        status=3,
        crowds=(Crowd(48),),
        engine=("--max-num-seqs", "16"),
        settings={"policy": "round-robin"},
        faults=((1, {"kind": "slow", "factor": 2.5}),),
    ),
    Case(
        name="not-cold",
        code="not_cold",
        status=4,
        crowds=(Crowd(24, LONG),),
        settings={"policy": "prefix-cache"},
        flags=("--expect-cold",),
        rehearsed=True,
    ),
    Case(
        name="held-before-scheduler",
        code="held_before_scheduler",
        status=4,
        crowds=(Crowd(48, Chats(answer_tokens=(40, 240))),),
        faults=tuple((number, {"kind": "delay", "delay": 3}) for number in range(3)),
    ),
    Case(
        name="foreign-traffic",
        code="foreign_traffic",
        status=4,
        crowds=(Crowd(36), Crowd(14, Chats(seed=1), past=0)),
    ),
)
