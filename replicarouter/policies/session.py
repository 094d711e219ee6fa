"""Requests of one session meet the same replica."""

from typing import ClassVar

from replicarouter.policies.keyed import Keyed
from replicarouter.protocol.request import InferenceRequest, Needs


class Session(Keyed):
    """Goes by the session key that a client sends."""

    needs: ClassVar[Needs] = Needs.SESSION

    def key(self, request: InferenceRequest) -> int | None:
        """The hash of the session key."""
        return request.session
