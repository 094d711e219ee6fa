"""What the clients do and the replicas answer."""

from dataclasses import dataclass

USERS = (1, 2, 5, 10, 20, 50, 90, 110, 150, 200, 250, 270, 500, 520, 1000, 1050, 1500, 2000)
"""Steps from one user to 2,000, close on both sides of the limits that proxies are shipped with."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of traffic: users who each send again as soon as their answer has ended.

    `users` are steps: so many users, the next step adds to them, and each step has a window of its
    own. `events` 0: the answer is JSON; else a stream of so many events, one each `interval` seconds
    (0: as fast as the replicas can). Sizes are bytes, times seconds. The users of a step start evenly
    over `spread`, so that paced streams do not end all at once; `warm` later the window begins.
    With `hold` the streams are opened once and the proxy's memory is read: `silent` replicas send
    nothing after the first event, `stalled` users read nothing after it.
    """

    users: tuple[int, ...]
    events: int = 0
    interval: float = 0.0
    body_bytes: int = 1024
    spread: float = 0.0
    warm: float = 1.0
    seconds: float = 5.0
    hold: bool = False
    silent: bool = False
    stalled: bool = False

    @property
    def unit(self) -> str:
        """Return what CPU time is divided by."""
        return "chunk" if self.events else "request"

    def offered(self, users: int) -> float:
        """Return the units a second that a proxy which keeps up must pass on; 0: no such rate.

        The first event of an answer comes at once.
        """
        answer = (self.events - 1) * self.interval
        return users * self.events / answer if answer else 0.0


SCENARIOS = {
    "short": Scenario(users=(64,)),
    "paced20k": Scenario(users=(256,), events=256, interval=0.012, spread=3.1, warm=0.5),
    "paced5k": Scenario(users=(256,), events=64, interval=0.048, spread=3.1, warm=0.5),
    "saturate": Scenario(users=(256,), events=256),
    "long256k": Scenario(users=(16,), body_bytes=256 << 10),
    "long1m": Scenario(users=(8,), body_bytes=1 << 20),
    "idle": Scenario(users=(2000,), events=256, spread=1.5, warm=60.0, seconds=6.0, hold=True, silent=True),
    "stalled": Scenario(users=(8,), events=400_000, warm=10.0, seconds=6.0, hold=True, stalled=True),
    "users": Scenario(users=USERS, events=16, interval=0.1, spread=0.8, warm=0.2, seconds=1.6),
}
