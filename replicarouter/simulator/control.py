"""The answers of `/sim/*`: where a test tells an engine what to do, and asks what it did. No sockets."""

from collections.abc import Callable
from typing import Any

import orjson

from replicarouter.simulator.faults import Fault, make_fault
from replicarouter.simulator.fields import ApiError, parse_object
from replicarouter.simulator.records import Records
from replicarouter.simulator.wire import HttpRequest, Reply

PREFIX = "/sim/"

_NOT_FOUND = Reply(404, b'{"detail":"Not Found"}')
_WRONG_METHOD = b'{"detail":"Method Not Allowed"}'


class Control:
    """Scripts the faults of one engine by `inject` and `clear`; `faults` tells those that are active."""

    def __init__(
        self,
        records: Records,
        *,
        inject: Callable[[Fault], None],
        clear: Callable[[], None],
        faults: Callable[[], dict[str, Any]],
    ) -> None:
        self._records = records
        self._inject = inject
        self._clear = clear
        self._faults = faults

    def respond(self, request: HttpRequest) -> Reply:
        """The answer to a request below `PREFIX`, or that there is none."""
        match request.path, request.method:
            case "/sim/fault", "POST":
                return self._post(request)
            case "/sim/fault", "DELETE":
                self._clear()
                return self._shown()
            case "/sim/fault", "GET":
                return self._shown()
            case "/sim/requests", "GET":
                return Reply(200, orjson.dumps(self._records.as_json()))
            case "/sim/fault", _:
                return Reply(405, _WRONG_METHOD, allow="GET, POST, DELETE")
            case "/sim/requests", _:
                return Reply(405, _WRONG_METHOD, allow="GET")
        return _NOT_FOUND

    def _post(self, request: HttpRequest) -> Reply:
        try:
            fields = parse_object("application/json", request.body)
            fault = make_fault(fields.values)
        except ApiError as error:
            return Reply(error.status, error.body())
        except ValueError as error:
            return Reply(400, ApiError(str(error)).body())
        self._inject(fault)
        return self._shown()

    def _shown(self) -> Reply:
        return Reply(200, orjson.dumps(self._faults()))
