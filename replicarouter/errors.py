"""Every refusal and failure the router itself answers with. An error knows its meaning at birth:
status, code, whose fault it is and whether another replica may have the request."""

from enum import Enum
from typing import ClassVar


class Fault(Enum):
    """Who caused it: decides what is logged, counted and held against a replica."""

    CLIENT = "client"
    REPLICA = "replica"
    ROUTER = "router"


class RouterError(Exception):
    """Base of all errors that become an answer. `message` is written for the client: it says what to do."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    fault: ClassVar[Fault] = Fault.ROUTER
    retryable: ClassVar[bool] = False
    closes: ClassVar[bool] = False
    upgrade: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.allow = allow


class InternalError(RouterError):
    """A fault of ours; logged with the request id."""


class ClientError(RouterError):
    """The request cannot be served as it was sent."""

    status, code, fault = 400, "invalid_request", Fault.CLIENT


class InvalidRequest(ClientError):
    """Not JSON where JSON is needed, or no model named while several are served."""


class MalformedRequest(ClientError):
    """Not well-formed HTTP: where the next request begins is anybody's guess, so the connection closes."""

    closes = True


class InvalidApiKey(ClientError):
    """No key, or a wrong one."""

    status, code = 401, "invalid_api_key"


class ModelNotFound(ClientError):
    """No pool serves this model, and every replica has said what it serves."""

    status, code = 404, "model_not_found"


class UnknownPath(ClientError):
    """Not one of the paths the router relays or answers."""

    status, code = 404, "unknown_path"


class ResponseNotFound(ClientError):
    """The replica that held this stored response is gone, and the response with it."""

    status, code = 404, "response_not_found"


class UnknownReplica(ClientError):
    """No replica of this name is in the fleet."""

    status, code = 404, "unknown_replica"


class ReplicaExists(ClientError):
    """A replica with this name or URL is in the fleet already."""

    status, code = 409, "replica_exists"


class MethodNotAllowed(ClientError):
    """The path exists, this method on it does not; `allow` lists those that do."""

    status, code = 405, "method_not_allowed"


class RequestTimeout(ClientError):
    """The client took too long to send its request."""

    status, code = 408, "request_timeout"


class BodyTooLarge(ClientError):
    """The body is larger than `max_body_bytes`."""

    status, code = 413, "body_too_large"


class UnsupportedEncoding(ClientError):
    """A body that had to be read is compressed."""

    status, code = 415, "unsupported_encoding"


class UpgradeRequired(ClientError):
    """A plain request where only a WebSocket session is served; `upgrade` is what to ask for."""

    status, code, upgrade = 426, "upgrade_required", "websocket"


class HeadersTooLarge(ClientError):
    """A header field or their number is over the limit."""

    status, code = 431, "headers_too_large"


class ExpectationFailed(ClientError):
    """An `Expect` other than `100-continue`."""

    status, code = 417, "invalid_request"


class Cancelled(ClientError):
    """An operator ended the request through the admin API."""

    status, code = 403, "cancelled"


class UnknownRequest(ClientError):
    """No request in flight has this id."""

    status, code = 404, "unknown_request"


class ReplicaError(RouterError):
    """A replica failed to answer."""

    status, code, fault = 502, "replica_disconnected", Fault.REPLICA


class ConnectFailed(ReplicaError):
    """The replica never saw the request, so any other replica may have it."""

    code, retryable = "connect_failed", True


class ReplicaDisconnected(ReplicaError):
    """The connection ended before the answer did; the replica may be working on the request."""


class StaleConnection(ReplicaDisconnected):
    """A connection from the pool ended right behind the write, without a byte: the replica had closed it
    as idle and never saw the request."""


class BadReplicaResponse(ReplicaError):
    """What came back is not a well-formed HTTP answer."""

    code = "bad_replica_response"


class ResponseHeadTimeout(ReplicaError):
    """No response head within `timeouts.response_head`."""

    status, code = 504, "response_head_timeout"


class IdleTimeout(ReplicaError):
    """Silence inside a response longer than `timeouts.idle`."""

    status, code = 504, "idle_timeout"


class SilentSession(RouterError):
    """Neither side of a WebSocket session spoke for `timeouts.idle`: nobody's fault."""

    status, code = 504, "idle_timeout"


class TotalTimeout(RouterError):
    """The request took longer than `timeouts.total`."""

    status, code = 504, "total_timeout"


class Unavailable(RouterError):
    """Nobody can serve this now; trying again later makes sense."""

    status, code = 503, "no_replica"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message, retry_after=retry_after)


class NoReplica(Unavailable):
    """No replica of the pool is ready."""


class QueueFull(RouterError):
    """As many requests wait already as `admission.max_queued` allows."""

    status, code = 429, "queue_full"

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=1)


class QueueTimeout(Unavailable):
    """Room did not come free within `admission.queue_timeout`."""

    code = "queue_timeout"


class Overloaded(Unavailable):
    """The router itself is out of a resource (file descriptors, memory); a connection is one."""

    code, closes = "overloaded", True


class Draining(Unavailable):
    """The router is shutting down."""

    code = "draining"


class CannotListen(OSError):
    """`port` cannot be opened on this machine; `address` has its host too."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class CannotStart(Exception):
    """The router cannot serve; the message says why."""


class SettingsError(Exception):
    """The settings cannot be used; the message has one line for each problem."""
