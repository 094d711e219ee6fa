"""Which key `prefix-hash` goes by."""

import pytest

from replicarouter.policies.prefix_hash import PrefixHash
from replicarouter.protocol.request import Needs
from tests.scene import a_request


@pytest.mark.parametrize(
    ("session", "head", "key"), [(3, 5, 3), (0, 5, 0), (None, 5, 5), (None, 0, 0), (None, None, None)]
)
def test_the_session_key_comes_before_the_head(
    session: int | None, head: int | None, key: int | None
) -> None:
    request = a_request()
    request.session, request.head = session, head

    assert PrefixHash().key(request) == key
    assert PrefixHash.needs == Needs.SESSION | Needs.HEAD
