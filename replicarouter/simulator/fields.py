"""Typed reading of a request's JSON, and the errors an engine answers with when it does not fit.
Statuses, `type`, `param` and `code` are those of vLLM 0.32.0; the texts are our own."""

from typing import Any

import orjson


class ApiError(Exception):
    """Becomes an answer: `status`, and a body with `kind` as its `type`."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """The JSON of the answer."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return orjson.dumps({"error": error})


def invalid(place: str | None, problem: str) -> ApiError:
    """The error for a body, or a field of it, that is not what the API takes."""
    return ApiError(f"1 validation error: {place or 'body'}: {problem}", kind="Bad Request", param=place)


def parse_object(content_type: str, body: bytes) -> "Fields":
    """The JSON object in `body`; ApiError when there is none."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise invalid(None, "the content type must be application/json")
    if not body:
        raise invalid("body", "required")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"body.{error.pos}", "not JSON") from None
    if not isinstance(value, dict):
        raise invalid("body", "must be an object")
    return Fields(value)


class Fields:
    """An object of the request. A field that is absent or null gives the default."""

    __slots__ = ("_place", "values")

    def __init__(self, values: dict[str, Any], place: str = "body") -> None:
        self.values = values
        self._place = place

    def integer(self, name: str) -> int | None:
        """A whole number; digits in a string will do."""
        value = self.values.get(name)
        if isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                raise self._mismatch(name, "an integer") from None
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise self._mismatch(name, "an integer")

    def number(self, name: str) -> float | None:
        """A number."""
        value = self.values.get(name)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return value
        raise self._mismatch(name, "a number")

    def flag(self, name: str) -> bool:
        """A boolean, false by default."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._mismatch(name, "a boolean")

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._mismatch(name, "a string")

    def object(self, name: str) -> "Fields | None":
        """An object."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, dict):
            return Fields(value, f"{self._place}.{name}")
        raise self._mismatch(name, "an object")

    def objects(self, name: str) -> list[dict[str, Any]] | None:
        """A list of objects."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
        raise self._mismatch(name, "a list of objects")

    def missing(self, name: str) -> ApiError:
        """The error for a field that must be there and is not."""
        return invalid(f"{self._place}.{name}", "required")

    def _mismatch(self, name: str, wanted: str) -> ApiError:
        return invalid(f"{self._place}.{name}", f"must be {wanted}")
