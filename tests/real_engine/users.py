"""Users who stream one chat after another through the router, and what each of them was told."""

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

import openai

from tests.real_engine.rig import HOST, MODEL, wait_until

TOKENS = 32
"""Tokens of an answer."""

CUT_SHORT = frozenset({"finish_reason abort", "finish_reason None"})
"""Outcomes of streams that end regularly before their time: what a vLLM that is told to stop makes of those
that run and of those that wait."""

PATIENCE = 60.0
"""Seconds after which a user gives up on a silent router: a request that hangs."""


@dataclass(slots=True)
class Told:
    """One request as its user saw it; times are on the monotonic clock.

    `outcome` is `ok`, else the code of the error that explained the failure, else what happened.
    `heard` holds the times of the stream's events.
    """

    began: float
    ended: float = 0.0
    outcome: str = ""
    message: str = ""
    replica: str = ""
    heard: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class Users:
    """Threads with a real client each; `told` holds the requests that have ended."""

    def __init__(self, port: int, count: int) -> None:
        self.told: list[Told] = []
        self._client = openai.OpenAI(
            base_url=f"http://{HOST}:{port}/v1", api_key="unused", max_retries=0, timeout=PATIENCE
        )
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=self._use, daemon=True) for _ in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        if error is None:
            wait_until(
                lambda: not any(thread.is_alive() for thread in self._threads),
                "every user has an answer",
                deadline=2 * PATIENCE,
            )
        self._client.close()

    def served_by(self, replica: str, *, since: float = 0.0) -> int:
        """Requests begun after `since` that this replica answered."""
        return sum(
            one.outcome == "ok" and one.replica == replica and one.began > since for one in list(self.told)
        )

    def outcomes(self) -> dict[str, int]:
        """How many requests ended how."""
        counts: dict[str, int] = {}
        for one in self.told:
            counts[one.outcome] = counts.get(one.outcome, 0) + 1
        return counts

    def longest_gap(self, replica: str, begin: float, end: float) -> float:
        """The longest time between two events of this replica's streams, whoever got them."""
        heard = sorted(at for one in self.told if one.replica == replica for at in one.heard)
        moments = [begin, *(at for at in heard if begin < at < end), end]
        return max(later - earlier for earlier, later in pairwise(moments))

    def _use(self) -> None:
        while not self._enough.is_set():
            one = Told(began=time.monotonic())
            self._ask(one)
            one.ended = time.monotonic()
            self.told.append(one)

    def _ask(self, one: Told) -> None:
        finish = None
        try:
            with self._client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "Tell me about lists."}],
                max_tokens=TOKENS,
                extra_body={"ignore_eos": True},
                stream=True,
            ) as stream:
                one.replica = stream.response.headers["X-Replicarouter-Replica"]
                for chunk in stream:
                    one.heard.append(time.monotonic())
                    finish = chunk.choices[0].finish_reason
        except openai.APIConnectionError as error:
            one.outcome, one.message = type(error).__name__, repr(error)
        except openai.APIError as error:
            one.outcome, one.message = str(error.code), error.message
        else:
            one.outcome = "ok" if finish == "length" else f"finish_reason {finish}"
