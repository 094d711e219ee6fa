"""What an operator can change while the router serves: which replicas there are, and requests in flight."""

import logging

import orjson
from pydantic import ValidationError

from replicarouter.admin.urls import UrlRule
from replicarouter.errors import Cancelled, InvalidRequest, UnknownRequest
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ReplicaSettings
from replicarouter.settings.errors import Location, explain
from replicarouter.settings.keys import known_keys
from replicarouter.settings.scope import refused

log = logging.getLogger(__name__)


class Operations:
    """Acts on the fleet and the ledger by name and id."""

    def __init__(self, fleet: Fleet, ledger: Ledger, urls: UrlRule) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._urls = urls

    async def add(self, document: bytes) -> Replica:
        """Add the replica that a JSON document describes like an entry of `replicas:`.

        Raises `InvalidRequest` with the reason when it cannot be used, `ReplicaExists` when its name or
        URL is taken.
        """
        settings = replica_settings(document)
        await self._urls.check(settings.url)
        return self._fleet.add(settings)

    def drain(self, name: str) -> Replica:
        """Give it nothing new; raises `UnknownReplica`."""
        replica = self._fleet.find(name)
        self._fleet.drain(replica)
        return replica

    def undrain(self, name: str) -> Replica:
        """Give it requests again; raises `UnknownReplica`."""
        replica = self._fleet.find(name)
        self._fleet.undrain(replica)
        return replica

    def remove(self, name: str) -> Replica | None:
        """Take it out. None when it has gone; else it drains, and leaves with its last request.

        Raises `UnknownReplica`.
        """
        replica = self._fleet.find(name)
        return None if self._fleet.remove(replica) else replica

    def cancel(self, request_id: str) -> None:
        """End a request in flight, whatever it is doing; raises `UnknownRequest`."""
        exchange = self._in_flight(request_id)
        if exchange is None or not exchange.interrupt(Cancelled("An operator cancelled this request.")):
            raise UnknownRequest("No request in flight has this id; GET /admin/requests lists them.")
        log.info("request cancelled", extra={"request_id": exchange.upstream_id})

    def _in_flight(self, request_id: str) -> Exchange | None:
        """By the id its replica sees, which is unique; else the oldest by the id its client gave."""
        exchange = self._ledger.in_flight.get(request_id)
        if exchange is not None:
            return exchange
        named = (one for one in self._ledger.oldest_first() if one.client_id == request_id)
        return next(named, None)


def replica_settings(document: bytes) -> ReplicaSettings:
    """Read an entry of `replicas:` from JSON; raises `InvalidRequest` with what is wrong."""
    try:
        entry = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
    try:
        settings = ReplicaSettings.model_validate(entry)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        for problem in problems:
            problem["loc"] = ("replica", *problem["loc"])
        told = explain(problems, source=_source, known=lambda at: known_keys(ReplicaSettings, at[1:]))
        raise InvalidRequest(told) from None
    if lines := refused(settings, source=_source, at=("replicas", 0)):
        raise InvalidRequest("\n".join(f"replica{line.removeprefix('replicas[0]')}" for line in lines))
    return settings


def _source(_: Location) -> str:
    return "request body"
