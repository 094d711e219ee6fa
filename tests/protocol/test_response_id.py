"""Finding the id of a response in the bytes of its answer."""

import pytest

from replicarouter.protocol.response_id import MOST_SEARCHED, ResponseIdFinder, named_in_path

WHOLE = b'{"id":"resp_a1b2","object":"response","output":[{"id":"msg_9"}]}'
STREAM = (
    b"event: response.created\n"
    b'data: {"response":{"id": "resp_a1b2","created_at":1},"type":"response.created"}\n\n'
)


@pytest.mark.parametrize("answer", [WHOLE, STREAM, b'{ "object": "response", "id" : "resp_a1b2" }'])
def test_the_id_is_found_wherever_the_reads_are_cut(answer: bytes) -> None:
    for cut in range(1, len(answer)):
        finder = ResponseIdFinder()
        found = [finder.feed(answer[:cut]), finder.feed(answer[cut:])]
        assert [one for one in found if one is not None] == ["resp_a1b2"], cut
        assert finder.over


@pytest.mark.parametrize("answer", [b'{"id":"chatcmpl-1"}', b'{"id":"msg_1"}', b'{"id":7}', b'{"error":{}}'])
def test_other_ids_are_none(answer: bytes) -> None:
    finder = ResponseIdFinder()
    assert finder.feed(answer) is None
    assert not finder.over


def test_the_search_is_bounded() -> None:
    finder = ResponseIdFinder()
    assert finder.feed(b"x" * MOST_SEARCHED) is None
    assert finder.over
    assert finder.feed(WHOLE) is None


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/responses/resp_1", "resp_1"),
        ("/v1/responses/resp_1/cancel", "resp_1"),
        ("/v1/responses/a%2Fb/input_items", "a/b"),
        ("/v1/responses", None),
        ("/v1/chat/completions", None),
    ],
)
def test_a_path_names_its_response(path: str, named: str | None) -> None:
    assert named_in_path(path) == named
