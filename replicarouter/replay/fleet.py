"""A fleet of replicas as the router's policies see it, without any server behind it."""

from collections.abc import Sequence

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.endpoints import Body, Endpoint
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.demand import Turn
from replicarouter.replay.trace_line import TOKEN_CHARACTERS
from replicarouter.settings import ReplicaSettings

CHAT = Endpoint("/v1/chat/completions", {"POST": Body.JSON})
MODEL = "replayed"

_SENT, _STREAMING = int(Stage.SENT), int(Stage.STREAMING)


def as_request(turn: Turn, blocks: Sequence[int], block_tokens: int) -> InferenceRequest:
    """The request as a policy sees it: a streamed chat whose keys have been read."""
    return InferenceRequest(
        CHAT,
        MODEL,
        stream=True,
        session=turn.session,
        head=turn.head,
        blocks=blocks,
        block_characters=block_tokens * TOKEN_CHARACTERS,
        characters=turn.prompt_tokens * TOKEN_CHARACTERS,
    )


class ReplayFleet:
    """Replicas with their counts in a ledger of their own. Counts move as a lease moves them: up in
    `take`, down in `release`. `numbers` says where each replica stands in the list."""

    def __init__(self, count: int, most: int = 0) -> None:
        self.ledger = Ledger()
        self.replicas: list[Replica] = []
        self.numbers: dict[Replica, int] = {}
        for number in range(count):
            name = f"replica-{number:04d}"
            settings = ReplicaSettings(url=f"http://{name}.invalid", name=name)
            replica = Replica.join(settings, self.ledger, most)
            replica.health, replica.why = State.READY, "replayed"
            self.replicas.append(replica)
            self.numbers[replica] = number
        self._most = most
        # Those with room. It is kept by single changes: to look at all of them for each request would
        # cost more than most policies do.
        self._roomy = list(self.replicas)
        self._places = list(range(count))

    @property
    def candidates(self) -> Sequence[Replica]:
        """The replicas with room for one more request, in no certain order once one has been full."""
        return self._roomy

    def take(self, replica: Replica) -> None:
        """One more request is sent to `replica`."""
        cells, row = self.ledger.cells, replica.row
        cells[row + _SENT] += 1
        cells[row + OUTSTANDING] += 1
        if self._most and cells[row + OUTSTANDING] == self._most:
            self._fill(self.numbers[replica])

    def stream(self, replica: Replica) -> None:
        """One of its requests begins to be answered."""
        cells, row = self.ledger.cells, replica.row
        cells[row + _SENT] -= 1
        cells[row + _STREAMING] += 1

    def release(self, replica: Replica) -> None:
        """One of its requests has been answered."""
        cells, row = self.ledger.cells, replica.row
        if self._most and cells[row + OUTSTANDING] == self._most:
            number = self.numbers[replica]
            self._places[number] = len(self._roomy)
            self._roomy.append(replica)
        cells[row + _STREAMING] -= 1
        cells[row + OUTSTANDING] -= 1

    def read(self, replica: Replica, reading: EngineReading, now: float) -> None:
        """Its engine has been asked how it is."""
        replica.take(reading, now)

    def _fill(self, number: int) -> None:
        place, last = self._places[number], self._roomy[-1]
        self._roomy[place] = last
        self._places[self.numbers[last]] = place
        self._roomy.pop()
