"""Finds the field called model in a multipart form (RFC 7578) while the form arrives."""

import re

LONGEST_MODEL = 512
"""Bytes of a model's name in a form."""

MOST_OF_HEAD = 16384
"""Bytes of one part's head; a longer one is no form that an engine would take."""

_LONGEST_BOUNDARY = 256
"""Bytes; RFC 2046 (section 5.1.1) allows 70, and senders exceed it."""

DISPOSITION = re.compile(rb"content-disposition:([^\r\n]{0,512})", re.IGNORECASE)
_NAMED_MODEL = re.compile(rb"[;\s]name=(?:\"model\"|model)[ \t]*(?:;|\Z)", re.IGNORECASE)
_FILE = re.compile(rb'[;\s]filename\*?=(?!"")', re.IGNORECASE)


def names_model(disposition: bytes) -> bool:
    """Whether a `Content-Disposition` of a form is that of a field, not a file, called model."""
    return _NAMED_MODEL.search(disposition) is not None and _FILE.search(disposition) is None


class ModelField:
    """Feed it the body, piece by piece, until `over`: then `model` is the field's value, which stands at
    `span` in the body, or None when there is none that could name a model.

    The boundary is taken from the body's own first line.
    """

    __slots__ = ("_delimiter", "_fed", "_rest", "_step", "model", "over", "span")

    def __init__(self) -> None:
        self.model: str | None = None
        self.span: tuple[int, int] | None = None
        self.over = False
        self._fed = 0
        self._rest = b""
        self._delimiter = b""
        self._step = self._read_boundary

    def feed(self, data: bytes) -> None:
        """Look at the next bytes."""
        if self.over:
            return
        self._fed += len(data)
        self._rest += data
        while not self.over and self._step():
            pass
        if self.over:
            self._rest = b""

    def _read_boundary(self) -> bool:
        """The first line; it is made to look like the delimiters that follow."""
        text = self._rest.lstrip(b"\r\n")
        end = text.find(b"\r\n")
        if not b"--".startswith(text[:2]) or (end < 0 and len(text) > _LONGEST_BOUNDARY):
            self.over = True
        if self.over or end < 0:
            return False
        self._delimiter = b"\r\n" + text[:end].rstrip()
        self._rest = b"\r\n" + text
        self.over = len(self._delimiter) > _LONGEST_BOUNDARY
        self._step = self._skip_content
        return True

    def _skip_content(self) -> bool:
        at = self._rest.find(self._delimiter)
        if at < 0:
            self._rest = self._rest[1 - len(self._delimiter) :]
            return False
        self._rest = self._rest[at + len(self._delimiter) :]
        self._step = self._read_head
        return True

    def _read_head(self) -> bool:
        """What stands behind a delimiter: the head of the next part, or the end of the form."""
        head, end, content = self._rest.partition(b"\r\n\r\n")
        if head.startswith(b"--") or len(head) > MOST_OF_HEAD:
            self.over = True
        if self.over or not end:
            return False
        disposition = DISPOSITION.search(head)
        wanted = disposition is not None and names_model(disposition[1])
        # The content may be empty: its delimiter then begins with the line end of the head.
        self._rest = content if wanted else b"\r\n" + content
        self._step = self._read_value if wanted else self._skip_content
        return True

    def _read_value(self) -> bool:
        end = self._rest.find(self._delimiter)
        if end > LONGEST_MODEL or (end < 0 and len(self._rest) > LONGEST_MODEL + len(self._delimiter)):
            self.over = True
        elif end >= 0:
            start = self._fed - len(self._rest)
            self.span = start, start + end
            self.model = self._rest[:end].decode("utf-8", "replace") or None
            self.over = True
        return False
