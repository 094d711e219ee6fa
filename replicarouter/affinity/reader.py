"""Reads the keys of a request, as far as somebody needs them."""

from collections.abc import Sequence

from multidict import CIMultiDictProxy

from replicarouter.affinity.blocks import BlockHasher
from replicarouter.affinity.canonical import cache_seed, canonical_text
from replicarouter.affinity.continuations import Continuations
from replicarouter.affinity.head import head_of
from replicarouter.affinity.session import SessionReader
from replicarouter.protocol.request import InferenceRequest, Needs

_SESSION, _HEAD, _BLOCKS = int(Needs.SESSION), int(Needs.HEAD), int(Needs.BLOCKS)


class KeyReader:
    """Reads keys. One object serves all requests, whose prompts it remembers within bounds."""

    def __init__(self, session_headers: Sequence[str], *, stick_to_api_key: bool) -> None:
        self._sessions = SessionReader(session_headers, stick_to_api_key=stick_to_api_key)
        self._continuations = Continuations()
        self._hasher = BlockHasher()

    def looks_inside(self, headers: CIMultiDictProxy[str], needs: Needs) -> bool:
        """Whether the body has to be read for the keys that `needs` asks for."""
        wanted = int(needs)
        if wanted & _BLOCKS:
            return True
        return wanted != 0 and not self._sessions.named_in(headers)

    def read(self, inference: InferenceRequest, headers: CIMultiDictProxy[str], needs: Needs) -> None:
        """Fill in the keys that `needs` asks for, and let go of the body's fields: the tree of a large
        prompt must not be held while its answer streams. Never raises.

        A request whose endpoint leaves no prompt in a cache has no blocks: nothing would be found by them."""
        fields, wanted = inference.fields, int(needs)
        inference.fields = None
        if wanted & _SESSION:
            inference.session = self._sessions.read(fields, headers)
        if fields is None:
            return
        if wanted & _HEAD and inference.session is None:
            # With a session key nobody asks for more: `prefix-hash` takes it first.
            inference.head = head_of(fields, self._continuations)
        if wanted & _BLOCKS and inference.endpoint.caches_prompt:
            text = canonical_text(fields)
            inference.characters = len(text)
            inference.blocks = self._hasher.hashes(text, cache_seed(fields))
