"""The turns of one conversation meet the same replica, without the client's help."""

from typing import ClassVar

from replicarouter.policies.keyed import Keyed
from replicarouter.protocol.request import InferenceRequest, Needs


class PrefixHash(Keyed):
    """Goes by the session key where there is one, else by the stable head of the conversation."""

    needs: ClassVar[Needs] = Needs.SESSION | Needs.HEAD

    def key(self, request: InferenceRequest) -> int | None:
        """The hash of the session key or of the head."""
        return request.head if request.session is None else request.session
