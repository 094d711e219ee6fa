"""Lines of traces, whole and broken."""

import pytest

from replicarouter.replay.trace_line import DEFAULT_OUTPUT_TOKENS, BadLine, read_line


def test_a_line_of_mooncake() -> None:
    line = read_line(b'{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}')
    assert (line.timestamp, line.input_tokens, line.output_tokens) == (27482.0, 6955, 52)
    assert line.hash_ids == [46, 47]
    assert line.session is None


def test_a_turn_of_a_session_with_its_pause() -> None:
    line = read_line(b'{"session_id": "abc-123", "delay": 2.5, "input_length": 150, "output_length": 20}')
    assert (line.session, line.delay, line.added) == ("abc-123", 2.5, True)


def test_text_is_counted_in_tokens_of_four_characters() -> None:
    line = read_line('{"text_input": "häuser und ja", "timestamp": 1}'.encode())
    assert (line.input_tokens, line.text) == (4, "häuser und ja".encode())
    assert line.output_tokens == DEFAULT_OUTPUT_TOKENS


@pytest.mark.parametrize(("mode", "added"), [("", False), (', "message_mode": "delta"', True)])
def test_messages_are_whole_prompts_unless_they_are_deltas(mode: str, added: bool) -> None:
    text = f'{{"messages": [{{"role": "user", "content": "hello"}}], "session_id": 7{mode}}}'
    line = read_line(text.encode())
    assert (line.session, line.added) == ("7", added)
    assert line.text is not None
    assert b"hello" in line.text


def test_tools_are_part_of_the_prompt() -> None:
    plain, tooled = (
        read_line(f'{{"messages": [{{"role": "user"}}]{tools}}}'.encode())
        for tools in ("", ', "tools": [{"type": "function"}]')
    )
    assert tooled.input_tokens > plain.input_tokens


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON object"),
        ("[1]", "no JSON object"),
        ("{}", "one of input_length, text_input, messages is needed; found none"),
        ('{"input_length": 1, "text_input": "a"}', "found input_length and text_input"),
        ('{"input_length": -1}', "input_length must be a whole number"),
        ('{"input_length": "7"}', "input_length must be a whole number"),
        ('{"input_length": 7, "output_length": 1.5}', "output_length must be a whole number"),
        ('{"input_length": 7, "hash_ids": 3}', "hash_ids must be a list of whole numbers"),
        ('{"input_length": 7, "hash_ids": [1, true]}', "hash_ids must be a list of whole numbers"),
        ('{"input_length": 7, "timestamp": "now"}', "timestamp must be milliseconds"),
        ('{"input_length": 7, "delay": -1}', "delay must be milliseconds"),
        ('{"text_input": 7}', "text_input must be text"),
        ('{"messages": []}', "messages must be a list with at least one message"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(text: str, said: str) -> None:
    with pytest.raises(BadLine, match=said):
        read_line(text.encode())
