"""Which part of a request names its model, and so is changed for an alias."""

from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.request import InferenceRequest
from replicarouter.proxy.alias import resolve
from replicarouter.proxy.body import Body
from tests.scene import a_request

ALIASES = {"short": "org/long"}
TARGET = "/v1/x?model=short"


def resolved(kind: Kind, data: bytes, inference: InferenceRequest) -> tuple[str, bytes, int | None]:
    body = Body(data, len(data))
    target = resolve(ALIASES, inference, kind, body, TARGET)
    return target, body.data, body.length


def test_a_json_body_is_changed_and_its_length_follows() -> None:
    inference = a_request("short")
    changed = b'{"model":"org/long"}'
    assert resolved(Kind.JSON, b'{"model":"short"}', inference) == (TARGET, changed, len(changed))
    assert inference.model == "org/long"


def test_where_the_name_is_known_to_stand_it_is_not_looked_for() -> None:
    inference = a_request("short")
    inference.model_at = (5, 12)
    assert resolved(Kind.JSON, b'12345"short"6', inference)[1] == b'12345"org/long"6'


def test_a_form_is_changed_without_quotes() -> None:
    inference = a_request("short")
    inference.model_at = (1, 6)
    assert resolved(Kind.FORM, b"<short>", inference)[1] == b"<org/long>"


def test_of_a_session_the_query_is_changed() -> None:
    target, data, _ = resolved(Kind.SESSION, b"", a_request("short"))
    assert (target, data) == ("/v1/x?model=org%2Flong", b"")


def test_what_names_no_alias_stays() -> None:
    for model in ("org/long", None):
        inference = a_request(model)
        body = b'{"model":"short"}'
        assert resolved(Kind.JSON, body, inference) == (TARGET, body, len(body))
        assert inference.model == model
