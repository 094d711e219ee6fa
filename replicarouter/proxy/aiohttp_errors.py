"""What is wrong with a head that aiohttp's parser has refused, as its client is told."""

from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from replicarouter.errors import HeadersTooLarge, MalformedRequest, RouterError


def complaint(error: BaseException | None) -> RouterError:
    """The error for the client."""
    if isinstance(error, LineTooLong):
        return HeadersTooLarge("A header field is too large (setting max_header_bytes).")
    if isinstance(error, BadHttpMessage) and "Too many headers" in error.message:
        return HeadersTooLarge("There are too many header fields (setting max_headers).")
    return MalformedRequest("This is not a well-formed HTTP/1.1 request.")
