"""What engines mean by the answers with which they refuse."""

import pytest

from replicarouter.protocol.refusal import LONGEST_PAUSE, Meaning, Refusal, read_refusal
from replicarouter.protocol.response_head import ResponseHead, parse_head

VLLM_BUSY = (
    b'{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again '
    b'later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}'
)
VLLM_DRAINS = b'{"error":{"message":"cannot schedule new futures after shutdown","code":500}}'
LLAMA_LOADS = b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'
UVICORN_FULL = b"Exceeded concurrency limit."


def head(status: int, *fields: str) -> ResponseHead:
    lines = [f"HTTP/1.1 {status} Whatever", "Content-Length: 9", *fields]
    return parse_head("\r\n".join(lines).encode())


@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [
        (429, b"", Meaning.BUSY),
        (429, b"anything", Meaning.BUSY),
        (503, VLLM_BUSY, Meaning.BUSY),
        (503, UVICORN_FULL, Meaning.BUSY),
        (503, LLAMA_LOADS, Meaning.LOADING),
        (503, b'{"detail":"The model is sleeping"}', Meaning.LOADING),
        (503, b'{"error":"server is shutting down"}', Meaning.LEAVING),
        (503, b"", Meaning.UNAVAILABLE),
        (503, b"no healthy upstream", Meaning.UNAVAILABLE),
        (500, VLLM_DRAINS, Meaning.LEAVING),
    ],
)
def test_a_refusal_is_understood(status: int, body: bytes, meaning: Meaning) -> None:
    assert read_refusal(head(status), body) == Refusal(meaning)


@pytest.mark.parametrize("body", [b"", b"CUDA error", b'{"error":{"message":"busy","code":500}}'])
def test_an_error_of_a_request_that_ran_is_no_refusal(body: bytes) -> None:
    assert read_refusal(head(500), body) is None


def test_the_pause_that_is_asked_for_is_read() -> None:
    assert read_refusal(head(429, "Retry-After: 7"), b"") == Refusal(Meaning.BUSY, 7.0)
    assert read_refusal(head(503, "retry-after:120"), VLLM_BUSY) == Refusal(Meaning.BUSY, 120.0)


def test_a_503_that_names_a_pause_is_busy() -> None:
    assert read_refusal(head(503, "Retry-After: 2"), b"") == Refusal(Meaning.BUSY, 2.0)


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1.5", "soon", ""])
def test_a_pause_that_is_no_number_of_seconds_is_none(value: str) -> None:
    assert read_refusal(head(429, f"Retry-After: {value}"), b"") == Refusal(Meaning.BUSY)


def test_a_pause_is_bounded() -> None:
    assert read_refusal(head(429, "Retry-After: 999999999"), b"") == Refusal(Meaning.BUSY, LONGEST_PAUSE)


def test_a_compressed_text_says_nothing() -> None:
    assert read_refusal(head(500, "Content-Encoding: gzip"), VLLM_DRAINS) is None
    refusal = read_refusal(head(503, "Content-Encoding: gzip"), VLLM_BUSY)
    assert refusal == Refusal(Meaning.UNAVAILABLE)
