"""Which path answers what. A generation comes back as a request for the scheduler, anything else as
a reply."""

from collections.abc import Callable

import orjson

from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.documents import API_VERSION, model_list
from replicarouter.simulator.exposition import CONTENT_TYPE, MetricsPage
from replicarouter.simulator.fields import ApiError, Fields, parse_object
from replicarouter.simulator.wire import HttpRequest, Reply

_NOT_FOUND = Reply(404, b'{"detail":"Not Found"}')
_WRONG_METHOD = b'{"detail":"Method Not Allowed"}'


class Routes:
    """The paths of one engine."""

    def __init__(self, api: Api, metrics: MetricsPage, started: int, version: str = API_VERSION) -> None:
        models = Reply(200, model_list(api.model, api.context, started))
        told = Reply(200, orjson.dumps({"version": version}))
        self._api = api
        self._reads: dict[str, Callable[[], Reply]] = {
            "/health": lambda: Reply(200),
            "/ping": lambda: Reply(200),
            "/version": lambda: told,
            "/v1/models": lambda: models,
            "/metrics": lambda: Reply(200, metrics.render(), CONTENT_TYPE),
        }
        self._posts: dict[str, Callable[[Fields], Reply | GenerationRequest]] = {
            "/v1/chat/completions": api.chat,
            "/v1/completions": api.completion,
            "/tokenize": self._tokenize,
        }
        self._generations = {"/v1/chat/completions", "/v1/completions"}

    def generates(self, request: HttpRequest) -> bool:
        """Whether it is meant to have something generated."""
        return request.method == "POST" and request.path in self._generations

    def respond(self, request: HttpRequest) -> Reply | GenerationRequest:
        """The reply to a request, or what it wants generated."""
        post = self._posts.get(request.path)
        read = self._reads.get(request.path)
        if request.method == "POST" and post:
            try:
                return post(parse_object(request.headers.get("content-type", ""), request.body))
            except ApiError as error:
                return Reply(error.status, error.body())
        if request.method == "GET" and read:
            return read()
        if post or read:
            return Reply(405, _WRONG_METHOD, allow="GET" if read else "POST")
        return _NOT_FOUND

    def _tokenize(self, fields: Fields) -> Reply:
        return Reply(200, orjson.dumps(self._api.tokenize(fields)))
