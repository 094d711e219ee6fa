"""Counters and histograms of exchanges. First contents are timed as they come, the rest at the end."""

from replicarouter.cells import Counter, Histograms, Shelf
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


class Metrics:
    """All that is counted and timed about exchanges, on a `shelf` if it shall outlive this process. Gauges are
    not here: they are read, not kept."""

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
        if exchange.endpoint != OTHER:
            took = exchange.ended_at - exchange.accepted_at
            self.request.of((exchange.endpoint, exchange.outcome)).observe(took)
        if exchange.outcome in _SHED:
            self.shed.add((exchange.outcome,))
        if not exchange.leased_at:
            return
        model, replica = (exchange.model,), (exchange.replica,)
        if exchange.outcome in _ANSWERED:
            # A 429 is no mistake of the client's: its engine is busy.
            kind = "429" if exchange.status == 429 else f"{exchange.status // 100}xx"
            self.answers.add((exchange.replica, kind))
        self.affinity.add((exchange.policy, exchange.affinity))
        self.queue.of(model).observe(exchange.leased_at - exchange.received_at)
        if exchange.sent_at:
            self.connect.of(replica).observe(exchange.sent_at - exchange.leased_at)
        self._count_tokens(exchange)

    def _count_tokens(self, exchange: Exchange) -> None:
        for kind, count in (
            ("prompt", exchange.prompt_tokens),
            ("cached", exchange.cached_tokens or 0),
            ("completion", exchange.completion_tokens),
        ):
            if 0 < count < MOST_TOKENS:
                self.tokens.add((exchange.model, kind), count)
