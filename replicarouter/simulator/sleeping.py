"""What vLLM lets its operator do over HTTP in development mode: sleep mode with `/sleep`, `/wake_up` and
`/is_sleeping`, and `/reset_prefix_cache`. No sockets."""

from typing import Protocol
from urllib.parse import parse_qs

from replicarouter.simulator.wire import HttpRequest, Reply

METHODS = {"/sleep": "POST", "/wake_up": "POST", "/is_sleeping": "GET", "/reset_prefix_cache": "POST"}


class Sleeper(Protocol):
    """An engine that can sleep. Its API server goes on answering; new generations wait."""

    @property
    def asleep(self) -> bool:
        """Whether it sleeps."""

    def sleep(self, level: int, *, abort: bool) -> None:
        """Sleep, and end or keep what runs."""

    def wake_up(self) -> None:
        """Go on."""

    def reset_prefix_cache(self) -> None:
        """Forget the prompts of the past, unless something runs."""


def answer_sleeper(sleeper: Sleeper, request: HttpRequest) -> Reply:
    """The answer to one of the paths of `METHODS`. `/sleep` takes `level` 1 or 2, and `mode` abort, which
    is vLLM's default, or wait or keep, which here are the same: what runs stands still."""
    if request.method != METHODS[request.path]:
        return Reply(405, b'{"detail":"Method Not Allowed"}', allow=METHODS[request.path])
    if request.path == "/is_sleeping":
        return Reply(200, b'{"is_sleeping":true}' if sleeper.asleep else b'{"is_sleeping":false}')
    if request.path == "/wake_up":
        sleeper.wake_up()
        return Reply(200)
    if request.path == "/reset_prefix_cache":
        sleeper.reset_prefix_cache()
        return Reply(200)
    said = parse_qs(request.query)
    level, mode = said.get("level", ["1"])[-1], said.get("mode", ["abort"])[-1]
    if level not in ("1", "2") or mode not in ("abort", "wait", "keep"):
        return Reply(400, b'{"detail":"level is 1 or 2, mode is abort, wait or keep"}')
    sleeper.sleep(int(level), abort=mode == "abort")
    return Reply(200)
