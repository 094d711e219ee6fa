"""What the client of a head is told that cannot be parsed."""

import pytest
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from replicarouter.proxy.aiohttp_errors import complaint


@pytest.mark.parametrize(
    ("error", "status", "named"),
    [
        (LineTooLong(b"X-Long: a", 8190), 431, "max_header_bytes"),
        (BadHttpMessage("Too many headers received"), 431, "max_headers"),
        (BadHttpMessage("Invalid header"), 400, "well-formed"),
        (None, 400, "well-formed"),
    ],
)
def test_it_says_what_to_do(error: BaseException | None, status: int, named: str) -> None:
    told = complaint(error)
    assert (told.status, named in str(told)) == (status, True)
