"""What the router adds to the head of an engine's answer: whose it is, who gave it, where its time went."""

from replicarouter.exchange import Exchange
from replicarouter.protocol.headers import response_head
from replicarouter.protocol.response_head import ResponseHead
from replicarouter.proxy.caller import Caller
from replicarouter.words import Written

MICROSECONDS = 1_000_000
"""In a second."""

_milliseconds = Written(lambda microseconds: f"{microseconds / 1000:.3f}")


def client_head(exchange: Exchange, caller: Caller, head: ResponseHead, *, expose_replica: bool) -> bytes:
    """The head of an engine's answer as its client gets it."""
    return response_head(
        head,
        receipts(exchange, expose_replica=expose_replica),
        modern=caller.modern,
        close=not caller.keep_alive,
        cors=caller.cors,
    )


def receipts(exchange: Exchange, *, expose_replica: bool) -> bytes:
    """Field lines of ours: the request id, who answered, and the router's share of the time in milliseconds,
    as Server Timing (https://www.w3.org/TR/server-timing/) has it."""
    leased, sent = exchange.leased_at, exchange.sent_at
    queue = _milliseconds[round((leased - exchange.received_at) * MICROSECONDS)]
    connect = _milliseconds[round((sent - leased) * MICROSECONDS)]
    head = _milliseconds[round((exchange.head_at - sent) * MICROSECONDS)]
    named = f"X-Replicarouter-Replica: {exchange.replica}\r\n" if expose_replica else ""
    return (
        f"X-Request-Id: {exchange.client_id}\r\n{named}"
        f"X-Replicarouter-Affinity: {exchange.affinity}\r\n"
        f"Server-Timing: queue;dur={queue}, connect;dur={connect}, head;dur={head}\r\n"
    ).encode("utf-8", "surrogateescape")
