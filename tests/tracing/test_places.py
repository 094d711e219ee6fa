"""Where spans say that replicas are."""

import pytest

from replicarouter.tracing.places import Place, Places
from tests.scene import a_fleet, named, replica_settings


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://10.0.0.1:8001/base", "10.0.0.1", 8001),
        ("https://gpu.example", "gpu.example", 443),
        ("http://[::1]", "::1", 80),
    ],
)
def test_a_place_is_that_of_the_url(url: str, host: str, port: int) -> None:
    fleet = a_fleet(replica_settings(url=url))
    named(fleet, "a").engine = "vllm"
    assert Places(fleet).find("a") == Place(host, port, "vllm")


def test_a_replica_that_has_left_has_no_place() -> None:
    assert Places(a_fleet("a")).find("b") is None
