"""Traces as demand."""

import json
from pathlib import Path
from typing import Any

import pytest

from replicarouter.replay.demand import Turn
from replicarouter.replay.trace import Trace, TraceError, TraceOptions, read_trace


def write(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> Trace:
    return read_trace(write(tmp_path, *rows), TraceOptions(**{"block_tokens": 16, **options}))


def talks(trace: Trace, seed: int = 1) -> list[tuple[float, list[Turn]]]:
    return [(one.at, list(one.turns)) for one in trace.conversations(seed)]


def row(at: int, *ids: int, tokens: int | None = None, **more: Any) -> dict[str, Any]:
    length = len(ids) * 16 if tokens is None else tokens
    return {"timestamp": at, "input_length": length, "output_length": 5, "hash_ids": list(ids), **more}


def test_equal_ids_are_equal_blocks_and_times_count_from_the_first(tmp_path: Path) -> None:
    (start, [first]), (later, [second]) = talks(read(tmp_path, row(1000, 0, 1), row(3500, 0, 2)))
    assert (start, later) == (0.0, 2.5)
    assert first.blocks[0] == second.blocks[0]
    assert first.blocks[1] != second.blocks[1]
    assert first.session is None


def test_the_last_block_may_be_partly_filled_or_left_out(tmp_path: Path) -> None:
    trace = read(tmp_path, row(0, 1, 2, tokens=20), row(1, 1, tokens=20))
    assert [len(turns[0].blocks) for _, turns in talks(trace)] == [2, 1]


def test_ids_that_do_not_fit_the_block_size_are_refused_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"some\.jsonl, line 2: 2 hash_ids for 600 tokens.*38 are expected"):
        read(tmp_path, row(0, 1), row(0, 1, 2, tokens=600))


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, row(0, 1))
    path.write_text(path.read_text() + "\n\n{oops\n", encoding="utf-8")
    with pytest.raises(TraceError, match=r"some\.jsonl, line 4: no JSON object"):
        read_trace(path, TraceOptions(block_tokens=16))


@pytest.mark.parametrize(("name", "said"), [("nowhere.jsonl", "No such file"), ("empty.jsonl", "no request")])
def test_a_file_without_requests_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(TraceError, match=said):
        read_trace(tmp_path / name, TraceOptions())


def test_time_can_be_scaled(tmp_path: Path) -> None:
    rows = [row(0, 1), row(4000, 2)]
    assert talks(read(tmp_path, *rows, speedup=2.0))[1][0] == 2.0
    # Two requests in 4 s are 0.5 a second.
    assert talks(read(tmp_path, *rows, rate=2.0))[1][0] == 1.0


def test_requests_can_be_limited_in_number_and_length(tmp_path: Path) -> None:
    rows = [row(at, *range(at + 1)) for at in range(6)]
    assert len(talks(read(tmp_path, *rows, requests=4))) == 4
    shorter = read(tmp_path, *rows, longest_prompt=32)
    assert (len(talks(shorter)), shorter.skipped, shorter.requests) == (2, 4, 2)


def test_without_timestamps_a_rate_is_needed_and_sets_the_times(tmp_path: Path) -> None:
    rows = [{"input_length": 32, "output_length": 1}] * 400
    with pytest.raises(TraceError, match="not every request has a timestamp"):
        read(tmp_path, *rows)
    trace = read(tmp_path, *rows, rate=10.0)
    assert 30 < talks(trace)[-1][0] < 50
    assert [at for at, _ in talks(trace, 1)] == [at for at, _ in talks(trace, 1)]
    assert [at for at, _ in talks(trace, 1)] != [at for at, _ in talks(trace, 2)]


def test_requests_without_ids_share_nothing(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 40}] * 2
    (_, [one]), (_, [other]) = talks(read(tmp_path, *rows))
    assert len(one.blocks) == 2
    assert not set(one.blocks) & set(other.blocks)


@pytest.mark.parametrize(
    ("rows", "sessions", "shared"),
    [
        ([{"timestamp": 0, "input_length": 40, "hashids": [1, 2]}], False, False),
        ([{"timestamp": 0, "input_length": 40}, row(0, 1)], False, True),
        ([{"timestamp": 0, "text_input": "hello"}], False, True),
        ([{"timestamp": 0, "messages": [{"role": "user"}]}], False, True),
        ([{"timestamp": 0, "input_length": 40, "session_id": "a"}], True, False),
        ([{"timestamp": 0, "input_length": 40, "session_id": "a"}] * 2, True, True),
    ],
)
def test_a_trace_tells_of_its_sessions_and_whether_anything_can_be_shared(
    tmp_path: Path, rows: list[dict[str, object]], sessions: bool, shared: bool
) -> None:
    trace = read(tmp_path, *rows)
    assert (trace.has_sessions, trace.can_share) == (sessions, shared)


def test_turns_of_a_session_add_to_what_was_said(tmp_path: Path) -> None:
    """AIPerf's form: lengths of what each turn adds, pauses in milliseconds; others may stand between."""
    trace = read(
        tmp_path,
        {"timestamp": 0, "session_id": "a", "input_length": 30, "output_length": 18},
        {"timestamp": 5, "session_id": "b", "input_length": 16, "output_length": 16},
        {"session_id": "a", "delay": 1500, "input_length": 16, "output_length": 16},
    )
    (_, [first, second]), (_, [other]) = talks(trace)
    assert (first.prompt_tokens, second.prompt_tokens, second.delay) == (30, 64, 1.5)
    assert tuple(second.blocks[:3]) == tuple(first.final_blocks)
    assert first.session == second.session == first.head != other.session


def test_the_first_ids_of_a_session_are_shared_and_its_own_blocks_are_not(tmp_path: Path) -> None:
    rows = [row(0, 1, 2, session_id=name) for name in ("a", "b")]
    follow = [{"session_id": name, "input_length": 16, "output_length": 1} for name in ("a", "b")]
    (_, [one, one_more]), (_, [other, other_more]) = talks(read(tmp_path, *rows, *follow))
    assert tuple(one.blocks) == tuple(other.blocks)
    assert one_more.blocks[:2] == other_more.blocks[:2]
    assert one_more.blocks[2:] != other_more.blocks[2:]


def test_whole_prompts_of_sessions_are_taken_as_they_are(tmp_path: Path) -> None:
    rows = [row(0, 1, 2, session_id="a"), row(2000, 1, 2, 3, session_id="a")]
    ((_, [first, second]),) = talks(read(tmp_path, *rows, whole_prompts=True))
    assert second.prompt_tokens == 48
    assert second.blocks[:2] == first.blocks
    assert (first.at, second.at) == (0.0, 2.0)
    assert first.session == second.session


def test_equal_beginnings_of_texts_are_equal_blocks(tmp_path: Path) -> None:
    texts = ["a" * 64 + "b" * 64, "a" * 64 + "c" * 64, "d" + "a" * 127]
    trace = read(tmp_path, *({"timestamp": 0, "text_input": text} for text in texts))
    one, other, third = (turns[0].blocks for _, turns in talks(trace))
    assert len(one) == 2
    assert one[0] == other[0] != third[0]
    assert one[1] != other[1]


def test_messages_keep_their_beginning_from_turn_to_turn(tmp_path: Path) -> None:
    hello = [{"role": "user", "content": "x" * 200}]
    answered = [*hello, {"role": "assistant", "content": "y" * 200}]
    rows = [{"timestamp": 0, "session_id": "s", "messages": said} for said in (hello, answered)]
    ((_, [first, second]),) = talks(read(tmp_path, *rows))
    assert second.blocks[: len(first.blocks)] == first.blocks
    assert second.prompt_tokens > first.prompt_tokens


def test_sessions_come_in_the_order_of_their_first_request(tmp_path: Path) -> None:
    trace = read(tmp_path, row(500, 1), row(100, 2), row(300, 3))
    assert [at for at, _ in talks(trace)] == [0.0, 0.2, 0.4]
