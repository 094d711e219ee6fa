"""One request, understood and ready to go to any replica of its pool."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from replicarouter.errors import RouterError
from replicarouter.exchange import Exchange
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.refusal import Refusal
from replicarouter.protocol.request import InferenceRequest
from replicarouter.proxy.body import Body
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.held import HeldAnswer
from replicarouter.proxy.inbound import Heading
from replicarouter.proxy.upload import Upload


class Learn(Protocol):
    """Who is told which replica holds a stored response."""

    def __call__(self, response_id: str, replica: Replica) -> None:
        """`replica` holds this response."""


class Errand:
    """What goes where, and for whom. What most errands never change is kept on the class.

    `target` is what to ask for where it is not what the client has written. `only` this replica will do,
    if it is given; `learn` is told of a stored response; `upgrade` asks for a WebSocket session. `tried`
    are the replicas that had it; `failure` and `declined` what the last of them made of it,
    `retry_reason` which of both it was; `nobody`: there is none left to try. `waited`: in the queue.
    """

    target = ""
    only: Replica | None = None
    learn: Learn | None = None
    upgrade = False
    waited = False
    tried: tuple[Replica, ...] = ()
    failure: RouterError | None = None
    declined: "DeclinedAnswer | None" = None
    retry_reason = ""
    nobody = False

    def __init__(
        self,
        inference: InferenceRequest,
        pool: Pool,
        heading: Heading,
        body: Body | Upload,
        caller: Caller,
        exchange: Exchange,
    ) -> None:
        self.inference = inference
        self.pool = pool
        self.heading = heading
        self.body = body
        self.caller = caller
        self.exchange = exchange


MayDecline = Callable[[Errand, Replica], bool]
"""Whether a request that this replica refused is to be tried elsewhere."""


@dataclass(frozen=True, slots=True)
class DeclinedAnswer:
    """The answer by which `replica` refused; the client gets it if nobody else accepts. The attempt began
    at `leased_at` and was sent at `sent_at`."""

    answer: HeldAnswer
    refusal: Refusal
    replica: Replica
    leased_at: float
    sent_at: float


class Declined(Exception):
    """A replica refused the request, and another one may have it."""

    def __init__(self, answer: HeldAnswer, refusal: Refusal) -> None:
        super().__init__()
        self.answer = answer
        self.refusal = refusal
