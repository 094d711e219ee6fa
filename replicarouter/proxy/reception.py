"""Where callers come in: who each is, whether he may enter, how urgent he is, what his browser is told."""

from multidict import istr

from replicarouter.access.cors import Cors
from replicarouter.access.door import OPEN_PATHS, Door
from replicarouter.admission.priority import Priority
from replicarouter.errors import InvalidApiKey
from replicarouter.protocol.answer import LocalAnswer
from replicarouter.proxy.aiohttp_internals import RequestHead
from replicarouter.proxy.caller import Caller

_ORIGIN = istr("Origin")


class Reception:
    """Knows the door and its rules; they may be replaced at any time.

    `plain`: everybody may come in, is called by his address, and has nothing to be told.
    """

    def __init__(self, door: Door, cors: Cors, priority: Priority) -> None:
        self.replace(door, cors, priority)

    def replace(self, door: Door, cors: Cors, priority: Priority) -> None:
        """Go on by other rules; who is in stays in."""
        self.door = door
        self.cors = cors
        self.priority = priority
        self.plain = door.open_to_all and not cors and not priority

    def welcome(self, message: RequestHead, path: str, caller: Caller) -> InvalidApiKey | None:
        """Note who the caller is; the refusal if he may not come in to `path`."""
        headers = message.headers
        peer = caller.connection.peer
        if self.cors:
            caller.cors = self.cors.fields(headers.get(_ORIGIN))
        caller.keys_stop_here = self.door.locked
        try:
            visitor = self.door.admit(headers, peer)
        except InvalidApiKey as refusal:
            caller.name = peer
            return None if path in OPEN_PATHS else refusal
        caller.name = visitor.name
        caller.forwards = visitor.forwards
        caller.priority = self.priority.rank(headers, visitor.key_name)
        return None

    def preflight(self, message: RequestHead) -> LocalAnswer | None:
        """The answer to a browser that asks whether its page may send a request; None for any other."""
        if not self.cors:
            return None
        return self.cors.preflight(message.method, message.headers)
