"""Numbers by one label that say what is there now, in a worker's cells: they are zero once it has died."""

from collections.abc import Iterable, Iterator, MutableMapping

from replicarouter.commons.place import Place
from replicarouter.commons.shelf import Shelf


class Levels(MutableMapping[str, int]):
    """A mapping from a label's value to its number. What the shelf has no room for is not told."""

    def __init__(self, name: str, shelf: Shelf) -> None:
        self._name = name
        self._shelf = shelf
        self._cells = shelf.cells
        self._offsets = {labels[0]: at for (whose, labels), at in shelf.known.items() if whose == name}
        self._spare: dict[str, int] = {}

    def __getitem__(self, label: str) -> int:
        offset = self._offsets.get(label)
        return self._spare[label] if offset is None else self._cells[offset]

    def __setitem__(self, label: str, value: int) -> None:
        offset = self._offsets.get(label)
        if offset is None and label not in self._spare:
            offset = self._shelf.take(self._name, (label,), 1, level=True)
            if offset is not None:
                self._offsets[label] = offset
        if offset is None:
            self._spare[label] = value
        else:
            self._cells[offset] = value

    def __delitem__(self, label: str) -> None:
        if self._offsets.pop(label, None) is None:
            del self._spare[label]
        else:
            self._shelf.drop(self._name, (label,))

    def __iter__(self) -> Iterator[str]:
        yield from self._offsets
        yield from self._spare

    def __len__(self) -> int:
        return len(self._offsets) + len(self._spare)


def sums(places: Iterable[Place], name: str) -> dict[str, int]:
    """The numbers of this name, added up over workers."""
    found: dict[str, int] = {}
    for place in places:
        for (whose, labels), (offset, _) in place.series().items():
            if whose == name:
                found[labels[0]] = found.get(labels[0], 0) + place.arena[offset]
    return found
