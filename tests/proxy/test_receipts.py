"""What is told of an answer in its head."""

import pytest

from replicarouter.proxy.receipts import receipts
from tests.scene import an_exchange


def test_receipts_name_the_replica_and_the_routers_share_of_the_time() -> None:
    exchange = an_exchange(
        client_id="id-1", replica="a", received_at=10.0, leased_at=10.001, sent_at=10.003, head_at=10.5
    )
    assert receipts(exchange, expose_replica=True) == (
        b"X-Request-Id: id-1\r\nX-Replicarouter-Replica: a\r\nX-Replicarouter-Affinity: none\r\n"
        b"Server-Timing: queue;dur=1.000, connect;dur=2.000, head;dur=497.000\r\n"
    )


def test_receipts_keep_the_replica_to_themselves_when_told() -> None:
    assert b"Replica:" not in receipts(an_exchange(replica="a"), expose_replica=False)


def test_a_request_id_of_any_bytes_is_returned_as_it_came() -> None:
    odd = b"caf\xc3\xa9-\xff"
    exchange = an_exchange(client_id=odd.decode("utf-8", "surrogateescape"))
    assert b"X-Request-Id: " + odd + b"\r\n" in receipts(exchange, expose_replica=True)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0.000"), (0.0000014, "0.001"), (0.00025, "0.250"), (0.5, "500.000"), (61.0, "61000.000")],
)
def test_times_are_in_milliseconds_with_microseconds(seconds: float, told: str) -> None:
    for _ in range(2):
        exchange = an_exchange(received_at=1.0, leased_at=1.0 + seconds)
        assert f"queue;dur={told},".encode() in receipts(exchange, expose_replica=False)
