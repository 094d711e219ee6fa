"""What the clients do and the replicas answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of traffic: `connections` users, each sending again as soon as its answer has ended.

    `events` 0: the answer is JSON; else a stream of so many events, one each `interval` seconds
    (0: as fast as the replicas can). Sizes are bytes, times seconds. Users start evenly over
    `spread`, so that paced streams do not end all at once.
    """

    connections: int
    events: int = 0
    interval: float = 0.0
    body_bytes: int = 1024
    spread: float = 0.0
    warm: float = 1.0
    seconds: float = 5.0
    hold: bool = False

    @property
    def unit(self) -> str:
        """Return what CPU time is divided by."""
        return "chunk" if self.events else "request"

    @property
    def offered(self) -> float:
        """Return the units a second that a proxy which keeps up must pass on; 0: no such rate."""
        return self.connections / self.interval if self.interval else 0.0


SCENARIOS = {
    "short": Scenario(connections=64),
    "paced20k": Scenario(connections=256, events=256, interval=0.012, spread=3.1, warm=0.5),
    "paced5k": Scenario(connections=256, events=64, interval=0.048, spread=3.1, warm=0.5),
    "saturate": Scenario(connections=256, events=256),
    "long256k": Scenario(connections=16, body_bytes=256 << 10),
    "long1m": Scenario(connections=8, body_bytes=1 << 20),
    "idle": Scenario(connections=1500, events=256, hold=True, spread=1.5, warm=10.0, seconds=6.0),
}
