"""How urgent a request says it is, if its caller may say so."""

from collections.abc import Mapping

from replicarouter.settings import PriorityHeader


class Priority:
    """Reads ranks from the header field of the setting `admission.priority_header`; 0 is the most urgent.

    Where keys are needed only callers who have shown one are believed, else everybody is: who must not
    choose for themselves have to be kept out, or the field taken from their requests, before they get
    here. Ranks are strict: as long as more urgent requests come faster than they are served, others
    wait, for `admission.queue_timeout` at the longest.
    """

    def __init__(self, header: PriorityHeader | None, *, keys_needed: bool) -> None:
        self._name = header.name if header else ""
        self._keys_needed = keys_needed
        self._ranks: dict[str, int] = {}
        for value in header.values if header else ():
            self._ranks.setdefault(value, len(self._ranks))
        self.last = len(self._ranks)

    def __bool__(self) -> bool:
        """Whether there is such a field."""
        return bool(self._name)

    def rank(self, headers: Mapping[str, str], key_name: str | None) -> int:
        """The rank of a request with these fields from a caller whose key has this name, None for none.

        The last one, behind those of all values, without the field and with a value that is not allowed.
        """
        if not self._name or (self._keys_needed and key_name is None):
            return self.last
        return self._ranks.get(headers.get(self._name, "").strip(), self.last)
