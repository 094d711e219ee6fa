"""What is noted of an answer while its bytes pass."""

import pytest

from replicarouter.exchange import Exchange
from replicarouter.proxy.observe import LARGE, TAIL_PARTS, Observer, StoredResponseObserver
from replicarouter.telemetry.metrics import Metrics
from tests.scene import HandClock, an_exchange

ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
THOUGHT = b'data: {"choices":[{"delta":{"reasoning":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}\n\n'
DONE = b"data: [DONE]\n\n"


class Watched:
    """An observer of one answer; each part passes a second after the one before."""

    def __init__(self, *, stream: bool = True) -> None:
        self.clock = HandClock()
        self.metrics = Metrics()
        self.exchange: Exchange = an_exchange(
            model="m1", replica="a", received_at=990.0, leased_at=995.0, head_at=1000.0
        )
        self.observer = Observer(self.exchange, self.clock, self.metrics, stream=stream)

    def passes(self, *parts: bytes) -> "Watched":
        for part in parts:
            self.clock.move(1)
            self.observer.chunk(part)
        return self

    @property
    def gaps(self) -> tuple[int, float]:
        series = self.metrics.gaps.of(("a",))
        return series.count, series.total


def test_all_bytes_are_counted() -> None:
    watched = Watched(stream=False).passes(b"abc", b"", b"defg")
    assert watched.exchange.bytes_out == 7


def test_the_first_content_is_noted_once() -> None:
    watched = Watched().passes(ROLE, TEXT, TEXT, DONE)

    assert watched.exchange.first_content_at == watched.exchange.first_answer_at == 1002.0
    assert not watched.exchange.reasoned
    assert watched.metrics.ttft.of(("m1",)).total == 12.0
    assert watched.metrics.upstream_ttft.of(("a",)).total == 7.0
    assert watched.metrics.ttft.merged().count == 1
    assert watched.metrics.answer_ttft.merged().count == 0


def test_reasoning_is_the_first_content_and_the_answer_comes_behind_it() -> None:
    watched = Watched().passes(ROLE, THOUGHT, THOUGHT, TEXT, TEXT)

    assert (watched.exchange.first_content_at, watched.exchange.first_answer_at) == (1002.0, 1004.0)
    assert watched.exchange.reasoned
    assert watched.metrics.ttft.merged().total == 12.0
    assert watched.metrics.answer_ttft.of(("m1",)).total == 14.0
    assert watched.metrics.answer_ttft.merged().count == 1


def test_gaps_are_those_behind_the_first_content() -> None:
    assert Watched().passes(ROLE).gaps == (0, 0.0)
    assert Watched().passes(ROLE, TEXT).gaps == (0, 0.0)
    assert Watched().passes(ROLE, TEXT, TEXT, TEXT).gaps == (2, 2.0)


def test_a_pause_of_the_client_is_no_gap() -> None:
    watched = Watched().passes(ROLE, TEXT)
    watched.clock.move(60)
    watched.observer.restart_silence()

    assert watched.passes(TEXT).gaps == (1, 1.0)


def test_silence_counts_from_the_last_byte() -> None:
    watched = Watched()
    assert watched.exchange.last_byte_at == 1000.0
    watched.passes(ROLE)
    assert watched.exchange.last_byte_at == 1001.0


def test_an_answer_that_is_no_stream_is_not_searched_for_content() -> None:
    watched = Watched(stream=False).passes(b'{"choices":[{"message":{"content":"a"}}]}', b"x")

    assert watched.exchange.first_content_at == 0
    assert watched.gaps == (0, 0.0)


@pytest.mark.parametrize(
    "parts",
    [
        (TEXT, USAGE, DONE, b"0\r\n\r\n"),
        (TEXT + USAGE + DONE,),
        (TEXT, USAGE[:30], USAGE[30:] + DONE),
        (TEXT, b"x" * (LARGE + 1) + USAGE),
    ],
)
def test_usage_is_found_at_the_end(parts: tuple[bytes, ...]) -> None:
    watched = Watched().passes(*parts)
    watched.observer.end()

    assert (watched.exchange.prompt_tokens, watched.exchange.completion_tokens) == (5, 7)
    assert not watched.exchange.in_band_error


def test_usage_far_from_the_end_is_not_looked_for() -> None:
    watched = Watched().passes(USAGE, *[TEXT] * TAIL_PARTS)
    watched.observer.end()
    assert watched.exchange.prompt_tokens == 0


def test_usage_of_a_whole_document_is_found_too() -> None:
    watched = Watched(stream=False).passes(b'{"id":1,"usage":{"prompt_tokens":5,"completion_tokens":7}}')
    watched.observer.end()
    assert (watched.exchange.prompt_tokens, watched.exchange.completion_tokens) == (5, 7)


def test_an_error_in_band_is_noted() -> None:
    watched = Watched().passes(TEXT, b'data: {"error": {"message": "no", "code": 500}}\n\n', DONE)
    watched.observer.end()

    assert watched.exchange.in_band_error
    assert watched.exchange.outcome == "upstream_error"


def test_a_document_about_errors_is_no_error_in_band() -> None:
    watched = Watched(stream=False).passes(b'data: {"error": {"message": "no"}}\n\n')
    watched.observer.end()
    assert not watched.exchange.in_band_error


ENDS = {
    (): True,
    (TEXT,): True,
    (b"2f\r\n" + TEXT + b"\r\n",): True,
    (b"data: a\r\n\r\n\r\n",): True,
    (b"2f\r\n" + TEXT, b"\r\n"): True,
    (b"2f\r\ndata: a\n", b"\n", b"\r", b"\n"): True,
    (b"data: a\n",): False,
    (b"data: a",): False,
    (b"8\r\ndata: a\n\r\n",): False,
    (b"data: a\n\ndata: ",): False,
}


@pytest.mark.parametrize("parts", ENDS)
def test_the_end_of_an_event_is_seen_however_it_was_cut(parts: tuple[bytes, ...]) -> None:
    chunked = b"".join(parts).endswith(b"\r\n")
    assert Watched().passes(*parts).observer.ends_event(chunked=chunked) is ENDS[parts]


def test_the_id_of_a_stored_response_is_learned_once() -> None:
    learned: list[str] = []
    exchange = an_exchange(model="m1", replica="a", head_at=1000.0)
    observer = StoredResponseObserver(exchange, HandClock(), Metrics(), stream=True, learn=learned.append)
    parts = [b'event: response.created\ndata: {"response":{"id":"re', b'sp_7"}}\n\n', b'{"id":"resp_8"}']
    for part in parts:
        observer.chunk(part)
    assert learned == ["resp_7"]
    assert exchange.bytes_out == sum(map(len, parts))
