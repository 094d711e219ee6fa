"""Answers that the router writes itself, and how a broken stream ends."""

import socket
import struct

from replicarouter.errors import RouterError
from replicarouter.protocol.answer import LocalAnswer
from replicarouter.protocol.error_body import error_event
from replicarouter.protocol.headers import local_head
from replicarouter.proxy.aiohttp_internals import ClientConnection
from replicarouter.proxy.relay import Relay

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def write_answer(
    client: ClientConnection, answer: LocalAnswer, *, close: bool, bare: bool, cors: bytes = b""
) -> int:
    """Write an answer; `bare` leaves the body out (HEAD). `cors` are field lines for a browser. Returns how
    many bytes of a body were written."""
    transport = client.transport
    if transport is None or transport.is_closing():
        return 0
    headers = list(answer.headers)
    if answer.content_type:
        headers.insert(0, ("Content-Type", answer.content_type))
    head = local_head(answer.status, len(answer.body), headers, close=close, cors=cors)
    transport.write(head if bare else head + answer.body)
    return 0 if bare else len(answer.body)


def end_broken(client: ClientConnection, relay: Relay, error: RouterError, *, messages_api: bool) -> int:
    """End an answer that cannot be completed: an SSE client is told, and no client can take what it
    got for a whole answer. Returns how many bytes were written."""
    transport = client.transport
    if transport is None or transport.is_closing():
        return 0
    told = b""
    if relay.at_event_boundary:
        told = relay.framed(error_event(error, messages_api=messages_api))
        transport.write(told)
    elif relay.ends_with_connection:
        # An orderly close would look like the regular end of this body.
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
        return 0
    transport.close()
    return len(told)
