"""What an operator can change while the router serves: which replicas there are."""

import orjson
from pydantic import ValidationError

from replicarouter.admin.urls import UrlRule
from replicarouter.errors import InvalidRequest
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ReplicaSettings
from replicarouter.settings.errors import Location, explain
from replicarouter.settings.keys import known_keys
from replicarouter.settings.scope import refused


class Operations:
    """Acts on the fleet by name."""

    def __init__(self, fleet: Fleet, urls: UrlRule) -> None:
        self._fleet = fleet
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
