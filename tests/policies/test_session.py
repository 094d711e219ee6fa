"""Which key `session` goes by."""

from replicarouter.policies.session import Session
from replicarouter.protocol.request import Needs
from tests.scene import a_request


def test_the_session_key_alone_counts() -> None:
    request = a_request()
    request.head = 5
    assert Session().key(request) is None

    request.session = 3

    assert Session().key(request) == 3
    assert Session.needs is Needs.SESSION
