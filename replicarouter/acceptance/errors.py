"""Why an answer is no good: what a check catches and tells. No I/O."""


class CheckError(Exception):
    """A request did not give what a check needs; the message says why, and where."""


class NoAnswer(CheckError):
    """Nothing came back, or it broke off before its head was whole."""


class Refused(CheckError):
    """An answer of another status than 200; `message` is what its body says."""

    def __init__(self, place: str, status: int, message: str) -> None:
        super().__init__(f"{place} answers {status}: {message or 'without a reason'}")
        self.status = status
        self.message = message


class Unreadable(CheckError):
    """An answer of status 200 that is not what the API says."""
