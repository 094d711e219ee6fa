"""Long texts of a JSON body, such as images, are lifted out of it before it is parsed: to copy and check them
takes a parser longer than all that is to be known of them.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from xxhash import xxh3_64_intdigest

from replicarouter.protocol.json_values import MOST_AT_ONCE, Opaque, first_text

_STRIDE = MOST_AT_ONCE // 2
"""Whatever is longer than two strides has a place in it at which it is looked for."""

MOST_SEEN = 50_000
"""Values that are looked at to find the names: a few milliseconds."""

_BACKSLASH = ord("\\")


def lift(body: bytes, chance: Random) -> tuple[bytes, dict[str, Opaque]]:
    """The body with a name in the place of each long text without quotation marks, and what the names stand
    for: by `chance`, so that no body can contain one. It is JSON when the body is, as far as that depends on
    what was left in it."""
    parts: list[bytes] = []
    lifted: dict[str, Opaque] = {}
    begin, at = 0, _STRIDE
    while at < len(body):
        opening = body.rfind(b'"', max(begin, at - _STRIDE), at)
        closing = body.find(b'"', at) if opening >= 0 else at
        if closing < 0:
            break
        if opening >= 0 and _is_long(body, opening, closing):
            name = f"{chance.getrandbits(128):032x}"
            raw = memoryview(body)[opening + 1 : closing]
            lifted[name] = Opaque(xxh3_64_intdigest(raw), len(raw), first_text(raw))
            parts += (body[begin : opening + 1], name.encode())
            begin = closing
        at = max(at, closing) + _STRIDE
    if not lifted:
        return body, lifted
    return b"".join((*parts, body[begin:])), lifted


def put_back(fields: dict[str, Any], lifted: Mapping[str, Opaque]) -> bool:
    """Have what was lifted in the place of its name, within `fields` as parsed; False if there is too much
    else in them to find it."""
    left, seen = len(lifted), 0
    inner: list[Any] = [fields]
    while inner and left:
        one = inner.pop()
        seen += len(one)
        if seen > MOST_SEEN:
            return False
        for key, value in one.items() if type(one) is dict else enumerate(one):
            if type(value) is str:
                if value in lifted:
                    one[key] = lifted[value]
                    left -= 1
            elif type(value) is dict or type(value) is list:
                inner.append(value)
    return not left


def _is_long(body: bytes, opening: int, closing: int) -> bool:
    """Whether a long text may stand between two marks: if it is none, but what is between two texts, then a
    name in its place is no JSON."""
    if closing + 1 - opening < MOST_AT_ONCE:
        return False
    return body[opening - 1] != _BACKSLASH and body[closing - 1] != _BACKSLASH
