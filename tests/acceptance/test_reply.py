"""What a reply tells beside its body."""

import pytest

from replicarouter.acceptance.errors import Refused, Unreadable
from replicarouter.acceptance.reply import Reply, reason_in


def reply(status: int = 200, body: bytes = b"{}", **headers: str) -> Reply:
    return Reply("one", status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def test_time_in_the_router_is_queue_and_connect() -> None:
    told = "queue;dur=120.5, connect;dur=30, head;dur=900"
    assert reply(server_timing=told).held == pytest.approx(0.1505)
    assert reply().held == 0
    assert reply(server_timing="queue;dur=x, cdn-cache;desc=hit").held == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error":{"message":"no\\n such model","code":404}}', "no such model"),
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"message":"m"}', "m"),
        (b"<html>gateway</html>", "<html>gateway</html>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
    ],
)
def test_the_reason_in_an_error_of_any_shape(body: bytes, reason: str) -> None:
    assert reason_in(body) == reason


def test_a_long_reason_is_cut() -> None:
    assert len(reason_in(b"x" * 5000)) < 250


def test_a_refusal_and_what_is_no_object_are_told_apart() -> None:
    with pytest.raises(Refused, match="one answers 503: busy"):
        reply(503, b'{"error":{"message":"busy"}}').document()
    for body in (b"[]", b"not json", b""):
        with pytest.raises(Unreadable):
            reply(200, body).document()
