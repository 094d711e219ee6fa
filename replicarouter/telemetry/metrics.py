"""Counters and histograms of exchanges. First contents are timed as they come, the rest at the end."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from replicarouter.cells import Counter, Histogram, Histograms, Labels, Shelf, Whole
from replicarouter.exchange import OK, OTHER, UPSTREAM_ERROR, Exchange

QUEUE_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
CONNECT_BOUNDS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
TTFT_BOUNDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
ITL_BOUNDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
REQUEST_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0)

MOST_TOKENS = 1_000_000_000
"""A larger count in one answer is a mistake of its engine, and is left out."""

_ANSWERED = frozenset((OK, UPSTREAM_ERROR))
"""Outcomes of answers that are an engine's from the status to the end."""

_SHED = frozenset(("queue_full", "queue_timeout", "overloaded", "draining"))


MOST_KINDS = 2048
"""Kinds of exchanges whose labels are kept."""

Kind = tuple[str, str, str, str, str, str, int]
"""Endpoint, outcome, model, replica, policy, affinity, status."""


@dataclass(frozen=True, slots=True)
class LabelsOfKind:
    """The labels under which exchanges of one kind are counted, by metric: made once instead of for each."""

    request: Labels
    answers: Labels
    affinity: Labels
    model: Labels
    replica: Labels
    prompt: Labels
    cached: Labels
    completion: Labels


class TokensOfKind(NamedTuple):
    """Where the tokens of an exchange are counted; `cells` is empty where nobody had told of any before."""

    cells: Whole
    prompt: int
    completion: int
    labels: LabelsOfKind


class RowsOfKind(NamedTuple):
    """Where an exchange is counted and timed that was sent, and answered by an engine: found once for each
    kind. Good until something is folded."""

    request: Histogram
    queue: Histogram
    connect: Histogram
    answers: Whole
    answer: int
    affinities: Whole
    affinity: int
    tokens: TokensOfKind


class Metrics:
    """All that is counted and timed about exchanges, on a `shelf` if it is to outlive this process. Gauges
    are not here: they are read, not kept."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.queue = Histograms(QUEUE_BOUNDS, "queue", shelf)  # model
        self.connect = Histograms(CONNECT_BOUNDS, "connect", shelf)  # replica
        self.ttft = Histograms(TTFT_BOUNDS, "ttft", shelf)  # model
        self.answer_ttft = Histograms(TTFT_BOUNDS, "answer_ttft", shelf)  # model
        self.upstream_ttft = Histograms(TTFT_BOUNDS, "upstream_ttft", shelf)  # replica
        self.gaps = Histograms(ITL_BOUNDS, "gaps", shelf)  # replica; fed by the relay, token by token
        self.request = Histograms(REQUEST_BOUNDS, "request", shelf)  # endpoint, outcome
        self.tokens = Counter("tokens", shelf)  # model, kind
        self.answers = Counter("answers", shelf)  # replica, kind
        self.affinity = Counter("affinity", shelf)  # policy, result
        self.cached_characters = Counter("cached_characters", shelf)  # policy
        self.shadow = Counter("shadow", shelf)  # policy, result
        self.shadow_choices = Counter("shadow_choices", shelf)  # policy, result
        self.shadow_cached_characters = Counter("shadow_cached_characters", shelf)  # policy
        self.routed_characters = Counter("routed_characters", shelf)  # policy, replica
        self.shed = Counter("shed", shelf)  # reason
        self._labels: dict[Kind, LabelsOfKind] = {}
        self._rows: dict[Kind, RowsOfKind] = {}
        for one in (self.request, self.queue, self.connect, self.answers, self.affinity, self.tokens):
            one.on_fold = self._rows.clear
        for reason in sorted(_SHED):
            # A rate needs a count to grow from: the first burst must not be missed.
            self.shed.touch((reason,))

    def first_content(self, exchange: Exchange) -> None:
        """Time the first content when it comes: a long stream must not hide its own start."""
        first = exchange.first_content_at
        self.ttft.of((exchange.model,)).observe(first - max(exchange.received_at, exchange.uploaded_at))
        self.upstream_ttft.of((exchange.replica,)).observe(first - exchange.leased_at)

    def first_answer(self, exchange: Exchange) -> None:
        """Time the first answer text after reasoning."""
        took = exchange.first_answer_at - max(exchange.received_at, exchange.uploaded_at)
        self.answer_ttft.of((exchange.model,)).observe(took)

    def observe(self, exchange: Exchange) -> None:
        """Take over what an ended exchange has to tell."""
        kind = (
            exchange.endpoint,
            exchange.outcome,
            exchange.model,
            exchange.replica,
            exchange.policy,
            exchange.affinity,
            exchange.status,
        )
        rows = self._rows.get(kind)
        if rows is None or not exchange.sent_at:
            self._observe_any(kind, exchange)
            return
        # As below, for what is common.
        request, queue, connect, answers, answer, affinities, affinity, tokens = rows
        leased = exchange.leased_at
        took = exchange.ended_at - exchange.accepted_at
        request.counts[bisect_left(request.bounds, took)] += 1
        request.sums[0] += took
        answers[answer] += 1
        affinities[affinity] += 1
        took = leased - exchange.received_at
        queue.counts[bisect_left(queue.bounds, took)] += 1
        queue.sums[0] += took
        took = exchange.sent_at - leased
        connect.counts[bisect_left(connect.bounds, took)] += 1
        connect.sums[0] += took
        cells, prompt, completion, labels = tokens
        asked, said = exchange.prompt_tokens, exchange.completion_tokens
        if cells and 0 < asked < MOST_TOKENS and 0 < said < MOST_TOKENS and not exchange.cached_tokens:
            cells[prompt] += asked
            cells[completion] += said
        else:
            self._count_tokens(labels, exchange)

    def _observe_any(self, kind: Kind, exchange: Exchange) -> None:
        labels = self._labels.get(kind) or self._make_labels(kind)
        if exchange.endpoint != OTHER:
            self.request.observe(labels.request, exchange.ended_at - exchange.accepted_at)
        if exchange.outcome in _SHED:
            self.shed.add((exchange.outcome,))
        if not exchange.leased_at:
            return
        if exchange.outcome in _ANSWERED:
            self.answers.add(labels.answers)
        self.affinity.add(labels.affinity)
        self.queue.observe(labels.model, exchange.leased_at - exchange.received_at)
        if exchange.sent_at:
            self.connect.observe(labels.replica, exchange.sent_at - exchange.leased_at)
        self._count_tokens(labels, exchange)
        if exchange.sent_at and exchange.outcome in _ANSWERED and exchange.endpoint != OTHER:
            self._keep_rows(kind, labels)

    def _count_tokens(self, labels: LabelsOfKind, exchange: Exchange) -> None:
        prompt, cached = exchange.prompt_tokens, exchange.cached_tokens
        completion = exchange.completion_tokens
        if 0 < prompt < MOST_TOKENS:
            self.tokens.add(labels.prompt, prompt)
        if cached and 0 < cached < MOST_TOKENS:
            self.tokens.add(labels.cached, cached)
        if 0 < completion < MOST_TOKENS:
            self.tokens.add(labels.completion, completion)

    def _keep_rows(self, kind: Kind, labels: LabelsOfKind) -> None:
        """Remember where exchanges of this kind are counted; they have been once."""
        answer, affinity = self.answers.cell(labels.answers), self.affinity.cell(labels.affinity)
        prompt, completion = self.tokens.cell(labels.prompt), self.tokens.cell(labels.completion)
        if answer is None or affinity is None:
            return
        none: Whole = []
        known = (none, 0, 0) if prompt is None or completion is None else (*prompt, completion[1])
        if len(self._rows) >= MOST_KINDS:
            self._rows.clear()
        self._rows[kind] = RowsOfKind(
            self.request.of(labels.request),
            self.queue.of(labels.model),
            self.connect.of(labels.replica),
            *answer,
            *affinity,
            TokensOfKind(*known, labels),
        )

    def _make_labels(self, kind: Kind) -> LabelsOfKind:
        endpoint, outcome, model, replica, policy, affinity, status = kind
        if len(self._labels) >= MOST_KINDS:
            self._labels.clear()
        # A 429 is no mistake of the client's: its engine is busy.
        answer = "429" if status == 429 else f"{status // 100}xx"
        made = self._labels[kind] = LabelsOfKind(
            request=(endpoint, outcome),
            answers=(replica, answer),
            affinity=(policy, affinity),
            model=(model,),
            replica=(replica,),
            prompt=(model, "prompt"),
            cached=(model, "cached"),
            completion=(model, "completion"),
        )
        return made
