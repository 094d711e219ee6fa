"""The table of relayed paths: what is in it, and that nothing else ever is."""

import pytest

from replicarouter.errors import MethodNotAllowed, UnknownPath
from replicarouter.protocol.endpoints import Body, Endpoints, body_kind

TABLE = Endpoints()
EXTRA = Endpoints(["/custom", "/tree/*", "/we.ird/*"])

IN_THE_CONTRACT = [
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
    *("/v1/score", "/v1/rerank", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech"),
    *("/tokenize", "/detokenize", "/pooling", "/classify", "/score", "/rerank", "/v2/rerank", "/v2/embed"),
    *("/inference/v1/generate", "/generate"),
]


@pytest.mark.parametrize("path", IN_THE_CONTRACT)
def test_the_paths_of_the_contract_take_a_post(path: str) -> None:
    endpoint = TABLE.find(path)
    assert endpoint is not None
    assert endpoint.label == path
    assert body_kind(endpoint, "POST") in {Body.JSON, Body.FORM}


@pytest.mark.parametrize("label", [endpoint.label for endpoint in TABLE])
def test_a_row_is_found_by_its_own_path(label: str) -> None:
    endpoint = TABLE.find(label.replace("{id}", "resp_1"))
    assert endpoint is not None
    assert endpoint.label == label


NEVER = [
    *("", "/", "*", "/v1", "/v1/", "/V1/chat/completions", "/v1/chat/completions/", "//v1/chat/completions"),
    *("/v1//chat/completions", "/v1/chat/completions/x", "v1/chat/completions", "/x/v1/chat/completions"),
    *(
        "/v1/chat/completions%2F",
        "/v1/chat%2Fcompletions",
        "/v1/chat/completions?x",
        "/v1/chat/completions#x",
    ),
    *("/v1/chat/completions ", "/v1/chat/completions\n", "/v1/chat/completions;x", "http://h/v1/completions"),
    *("/sleep", "/wake_up", "/reset_prefix_cache", "/collective_rpc", "/v1/load_lora_adapter", "/shutdown"),
    *(
        "/v1/unload_lora_adapter",
        "/start_profile",
        "/flush_cache",
        "/update_weights",
        "/server_info",
        "/docs",
    ),
    *("/v1/realtime/", "/v1/realtime/x", "/health", "/metrics", "/ready", "/v1/models", "/openapi.json"),
]


@pytest.mark.parametrize("path", NEVER)
def test_other_paths_are_not_in_the_table(path: str) -> None:
    assert TABLE.find(path) is None


IDS = ["resp_1", "a-b.c~d", "..a", "...", "a..b", "a%20b", "x" * 500, "ü"]
ESCAPES = [
    *(
        ".",
        "..",
        "",
        "a/b",
        "a/../b",
        "../sleep",
        "%2e",
        "%2E%2e",
        "..%2f",
        "a%2fb",
        "a%2Fb",
        "a%5cb",
        "a\\b",
    ),
    *("a%5Cb", "a%00b", "a b", "a\tb", "a\nb", "a?b", "a#b", "%", "%2", "%zz", "a%2", ".%2e", "%2e."),
]
BELOW = ["/v1/responses/{}", "/v1/responses/{}/cancel", "/v1/responses/{}/input_items", "/v1/audio/{}"]


@pytest.mark.parametrize("path", BELOW)
@pytest.mark.parametrize("segment", IDS)
def test_an_id_is_one_segment(path: str, segment: str) -> None:
    assert TABLE.find(path.format(segment)) is not None


@pytest.mark.parametrize("path", BELOW)
@pytest.mark.parametrize("segment", ESCAPES)
def test_a_segment_that_could_mean_another_path_never_matches(path: str, segment: str) -> None:
    assert TABLE.find(path.format(segment)) is None


def test_responses_can_be_read_deleted_and_cancelled() -> None:
    response, cancel = TABLE.find("/v1/responses/r"), TABLE.find("/v1/responses/r/cancel")
    assert [body_kind(response, method) for method in ("GET", "DELETE")] == [Body.OPTIONAL] * 2
    assert body_kind(cancel, "POST") is Body.OPTIONAL


def test_forms_are_where_audio_is_sent() -> None:
    forms = {endpoint.label for endpoint in TABLE if Body.FORM in endpoint.bodies.values()}
    assert forms == {"/v1/audio/transcriptions", "/v1/audio/translations"}


def test_a_session_begins_with_a_get() -> None:
    sessions = {
        endpoint.label: endpoint.allow for endpoint in TABLE if Body.SESSION in endpoint.bodies.values()
    }
    assert sessions == {"/v1/realtime": "GET"}
    assert body_kind(TABLE.find("/v1/realtime"), "GET") is Body.SESSION


def test_prompts_are_cached_where_a_reply_is_made_of_them() -> None:
    assert {endpoint.label for endpoint in EXTRA if endpoint.caches_prompt} == {
        *("/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/v1/responses"),
        *("/v1/messages", "/inference/v1/generate", "/generate"),
    }


def test_an_unknown_path_is_404() -> None:
    with pytest.raises(UnknownPath):
        body_kind(TABLE.find("/sleep"), "POST")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS", "post", "QUERY"])
def test_another_method_is_told_which_ones_there_are(method: str) -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        body_kind(TABLE.find("/v1/completions"), method)
    assert refused.value.allow == "POST"


def test_all_methods_of_a_row_are_told() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        body_kind(TABLE.find("/v1/responses/r"), "PUT")
    assert refused.value.allow == "GET, DELETE"


@pytest.mark.parametrize("path", ["/custom", "/tree/a", "/tree/a/b", "/tree/a/b/c", "/we.ird/x"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_paths_of_the_operator_take_any_method(path: str, method: str) -> None:
    assert body_kind(EXTRA.find(path), method) is Body.OPTIONAL


@pytest.mark.parametrize(
    "path",
    [
        *("/custom/", "/custom/a", "/customs", "/tree", "/tree/", "/tree/a/", "/tree//a", "/we-ird/x"),
        *(f"/tree/{segment}" for segment in ESCAPES if segment != "a/b"),
        *(f"/tree/a/{segment}/b" for segment in ESCAPES if segment != "a/b"),
    ],
)
def test_what_could_leave_the_tree_never_matches(path: str) -> None:
    assert EXTRA.find(path) is None


def test_below_a_tree_all_paths_share_one_label() -> None:
    assert {endpoint.label for path in ("/tree/a", "/tree/b/c") if (endpoint := EXTRA.find(path))} == {
        "/tree/*"
    }
