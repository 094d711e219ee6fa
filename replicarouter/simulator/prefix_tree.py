"""Which blocks can be found by the hash of their prefix, as a tree of runs: blocks that follow one another
and have had the same fate so far. What is done with a prompt costs by the run, not by the block."""

from collections import abc, deque


class Run:
    """Blocks with these `hashes`, of which the last is the `end`th of its prefix. `holders` sequences use
    all of them, and with them those of the `parent` and so on. `children` runs go on from its end. Of one
    that nobody holds `released` tells when that began."""

    __slots__ = ("children", "end", "hashes", "holders", "parent", "released")

    def __init__(self, hashes: list[int], parent: "Run | None", end: int) -> None:
        self.hashes = hashes
        self.parent = parent
        self.end = end
        self.holders = 0
        self.children = 0
        self.released = 0


class PrefixTree:
    """Runs of blocks. Hashes are chained: equal hash, equal prefix. So two runs that agree in a block
    agree in all before it, and a leaf's last block is the least recently used of its prefix.

    Every prefix goes on from the `root`, which has no blocks. `idle` is how many blocks can be found and
    nobody holds, `size` how many can be found.
    """

    __slots__ = ("_queue", "_releases", "_starts", "idle", "root", "size")

    def __init__(self) -> None:
        self.root = Run([], None, 0)
        self.idle = 0
        self.size = 0
        self._starts: dict[int, Run] = {}  # by the first hash
        # Runs by the time of their release, tails before what they follow. One that has been used since
        # stays listed, which costs less than to search for it, and is swept up in time.
        self._queue: deque[tuple[int, Run]] = deque()
        self._releases = 0

    def find(self, hashes: abc.Sequence[int]) -> tuple[int, int]:
        """How many leading blocks there are, and how many of these somebody holds."""
        found = held = 0
        tip, total = self.root, len(hashes)
        while found < total:
            run = self._starts.get(hashes[found])
            if run is None or run.parent is not tip:
                break
            same = _same(run, hashes, found)
            found += same
            if run.holders:
                held = found
            if same < len(run.hashes):
                break
            tip = run
        return found, held

    def hold(self, tip: Run, hashes: abc.Sequence[int]) -> Run:
        """Hold the blocks with these hashes that go on from `tip`, as far as there are any; the new tip."""
        place, total = 0, len(hashes)
        while place < total:
            run = self._starts.get(hashes[place])
            if run is None or run.parent is not tip:
                break
            same = _same(run, hashes, place)
            if same < len(run.hashes):
                run = self._split(run, same)
            if not run.holders:
                self.idle -= same
            run.holders += 1
            tip = run
            place += same
        return tip

    def grow(self, tip: Run, hashes: abc.Sequence[int]) -> Run:
        """Let blocks of the one sequence that holds `tip` be found after it, and hold them; the new tip.
        Those that are there already are held instead."""
        before = tip.end
        if tip.children or tip.holders != 1:
            tip = self.hold(tip, hashes)
            hashes = hashes[tip.end - before :]
            if not hashes or hashes[0] in self._starts:  # the latter only if they are not chained
                return tip
            tip.children += 1
            tip = Run([], tip, tip.end)
            tip.holders = 1
            self._starts[hashes[0]] = tip
        tip.hashes += hashes
        tip.end += len(hashes)
        self.size += len(hashes)
        return tip

    def release(self, tip: Run) -> int:
        """Let go of `tip` and what it goes on from; how many blocks nobody holds any more."""
        self._releases += 1
        freed = 0
        run = tip
        while run.parent is not None:
            run.holders -= 1
            if not run.holders:
                run.released = self._releases
                self._queue.append((self._releases, run))
                freed += len(run.hashes)
            run = run.parent
        self.idle += freed
        if len(self._queue) > 2 * len(self._starts) + 64:
            self._queue = deque(entry for entry in self._queue if _is_idle(*entry))
        return freed

    def evict(self, blocks: int) -> None:
        """Forget `blocks` that nobody holds, at most all of them: the least recently used first, and
        tails before what they follow."""
        self.idle -= blocks
        self.size -= blocks
        queue = self._queue
        while blocks:
            released, run = queue[0]
            length = len(run.hashes)
            if not _is_idle(released, run):
                queue.popleft()
            elif length > blocks:
                del run.hashes[-blocks:]
                run.end -= blocks
                return
            else:
                queue.popleft()
                blocks -= length
                self._remove(run)

    def clear(self) -> None:
        """Forget everything; nobody may hold any of it."""
        self._starts.clear()
        self._queue.clear()
        self.root = Run([], None, 0)
        self.idle = self.size = 0

    def _split(self, run: Run, place: int) -> Run:
        """Cut a run in two at `place`. It stays the second part, so that its holders and its turn to be
        evicted are right; the first is returned."""
        first = Run(run.hashes[:place], run.parent, run.end - len(run.hashes) + place)
        first.holders = run.holders
        first.children = 1
        run.hashes = run.hashes[place:]
        run.parent = first
        self._starts[first.hashes[0]] = first
        self._starts[run.hashes[0]] = run
        return first

    def _remove(self, run: Run) -> None:
        if self._starts.get(run.hashes[0]) is run:
            del self._starts[run.hashes[0]]
        run.hashes = []
        if run.parent is not None:
            run.parent.children -= 1


def _is_idle(released: int, run: Run) -> bool:
    """Whether a run has not been used since it was released then."""
    return not run.holders and run.released == released and bool(run.hashes)


def _same(run: Run, hashes: abc.Sequence[int], place: int) -> int:
    """How many of the hashes from `place` on are those of the run; the first of them is."""
    high = min(len(run.hashes), len(hashes) - place)
    if run.hashes[high - 1] == hashes[place + high - 1]:
        return high
    low = 1
    high -= 1
    while low < high:
        middle = (low + high + 1) // 2
        if run.hashes[middle - 1] == hashes[place + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
