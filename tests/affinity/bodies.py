"""Bodies as clients send them, and any other JSON, for the tests of keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from replicarouter.affinity.reader import KeyReader
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.request import InferenceRequest, Needs

ALL = Needs.SESSION | Needs.HEAD | Needs.BLOCKS
PNG = "data:image/png;base64,iVBORw0KGgo"

Fields = dict[str, Any]


def no_headers() -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict())


def request_of(fields: Mapping[str, Any] | None) -> InferenceRequest:
    endpoint = Endpoints().find("/v1/chat/completions")
    assert endpoint is not None
    return InferenceRequest(endpoint, "m1", fields=fields)


def keys_of(
    fields: Mapping[str, Any] | None, reader: KeyReader | None = None, needs: Needs = ALL
) -> InferenceRequest:
    request = request_of(fields)
    reader = reader or KeyReader([], stick_to_api_key=False)
    reader.read(request, no_headers(), needs)
    return request


def blocks_of(fields: Mapping[str, Any]) -> Sequence[int]:
    return keys_of(fields, needs=Needs.BLOCKS).blocks


def head_of(fields: Mapping[str, Any], reader: KeyReader | None = None) -> int | None:
    return keys_of(fields, reader, Needs.HEAD).head


def said(role: str, content: Any, **more: Any) -> Fields:
    return {"role": role, "content": content, **more}


def image(url: str = PNG) -> Fields:
    return {"type": "image_url", "image_url": {"url": url}}


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}

SHAPES: dict[str, Fields] = {
    "text": {"messages": [said("user", "hello")]},
    "text and image": {"messages": [said("user", [{"type": "text", "text": "what"}, image()])]},
    "only an image": {"messages": [said("user", [image()])]},
    "calls of tools": {
        "tools": [TOOL],
        "messages": [
            said("user", "what is up"),
            said("assistant", None, tool_calls=[CALL]),
            said("tool", "blue", tool_call_id="c1"),
        ],
    },
    "content missing": {"messages": [{"role": "user"}]},
    "content a number": {"messages": [said("user", 7)]},
    "content an empty list": {"messages": [said("user", [])]},
    "unknown part": {"messages": [said("user", [{"type": "smell", "of": {"a": [{"rose": None}]}}])]},
    "no messages": {"messages": []},
    "messages a text": {"messages": "hello"},
    "several conversations": {"messages": [[said("user", "a")], [said("user", "b")]]},
    "prompt": {"prompt": "once upon"},
    "prompts": {"prompt": ["once", "twice"]},
    "token ids": {"prompt": [1, 2, 3]},
    "lists of token ids": {"prompt": [[1, 2], [3]]},
    "token ids beyond their range": {"prompt": [1, -2, 2**40, 0.5]},
    "embeddings": {"input": ["a", "b"]},
    "responses": {"instructions": "be kind", "input": "hello"},
    "responses in items": {
        "instructions": "be kind",
        "input": [
            said("user", [{"type": "input_text", "text": "hello"}]),
            {"type": "reasoning", "id": "r1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "blue"},
        ],
    },
    "anthropic": {
        "system": [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            said("user", "hello"),
            said("assistant", [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]),
            said(
                "user",
                [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "blue"}]}],
            ),
        ],
    },
    "sglang": {"text": "once upon", "image_data": ["aGVsbG8="]},
    "sglang ids": {"input_ids": [1, 2, 3]},
    "nothing": {},
    "nulls": {"messages": None, "prompt": None, "user": None, "tools": None},
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(2**70),
    st.floats(),
    st.text(max_size=8),
    st.just("\ud800"),
)
NAMES = st.one_of(
    st.sampled_from(
        ["role", "content", "type", "text", "image_url", "url", "id", "output", "tool_calls", "cache_control"]
    ),
    st.text(max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(NAMES, inner, max_size=4),
        st.sampled_from(["text", "image_url", "tool_result", "message"]).map(lambda kind: {"type": kind}),
    ),
    max_leaves=20,
)
CONTENTS = st.one_of(
    st.text(max_size=40),
    st.none(),
    st.lists(
        st.one_of(
            st.text(max_size=20).map(lambda text: {"type": "text", "text": text}),
            st.text(max_size=20).map(image),
            VALUES,
        ),
        max_size=3,
    ),
    VALUES,
)
MESSAGES = st.one_of(
    st.builds(said, st.sampled_from(["system", "user", "assistant", "tool"]), CONTENTS),
    st.builds(
        said,
        st.just("assistant"),
        st.none(),
        tool_calls=st.lists(st.just(CALL), max_size=2),
        refusal=st.none(),
    ),
    VALUES,
)
