"""A bounded memory of raw prompts: which new one goes on where an earlier one ended.

A raw prompt shows no turns, but the next is the last one and more; two from one template just begin alike.
"""

from collections import OrderedDict

from xxhash import xxh3_64_intdigest

MOST_PROMPTS = 65536
"""Prompts that are remembered; the memory takes about 25 MB when it is full."""

MOST_CHARACTERS = 2**19
"""Characters of a prompt that are looked at. Prompts that are the same so far count as the same."""

MOST_HEIRS = 8
"""Different prompts that may go on from one: turns are tried again or sampled twice. What more of them go
on from is no turn, but a text that many begin with (the template alone, sent to warm a cache up), and would
become one key for all."""

MOST_TRIES = 2048
"""Ends of known prompts that are compared with one new prompt, longest first: half a millisecond. A real
conversation has a few dozen on its way; prompts made so that none of their ends fits could have 65,000."""

_BLOCK = 128
"""Characters between two places where the end of a known prompt can be found: fewer would need more
hashes on the way (one takes 0.15 µs), more of them more tries at each place."""


class _Prompt:
    """A remembered prompt: the hash of what stands before its last part (`stem`), and its conversation's
    head."""

    __slots__ = ("head", "heirs", "stem")

    def __init__(self, stem: int, head: int) -> None:
        self.stem = stem
        self.head = head
        self.heirs = 0


class _Stem:
    """How many remembered prompts end less than a block behind one place, and after how many characters,
    as bits: those of prompts that are forgotten stay until none is left, and cost a try each."""

    __slots__ = ("lengths", "prompts")

    def __init__(self) -> None:
        self.prompts = 0
        self.lengths = 0


class Continuations:
    """Finds the head of the conversation that a raw prompt belongs to; remembers at most `most` prompts, of
    which the one that was seen first goes first."""

    def __init__(self, most: int = MOST_PROMPTS) -> None:
        self._most = most
        self._prompts: OrderedDict[int, _Prompt] = OrderedDict()
        self._stems: dict[int, _Stem] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    def head(self, text: bytes, seed: int = 0) -> int:
        """The head of the conversation that goes on with `text`, and remember it for the next turn.

        It is the head of the longest remembered prompt that `text` begins with, else the hash of `text`
        itself. `seed` keeps prompts apart that are none of each other's business. Takes time with the
        length of `text`, at most a millisecond.
        """
        text = text[:MOST_CHARACTERS]
        stems = [seed]
        stem = seed
        for at in range(0, len(text) - _BLOCK + 1, _BLOCK):
            stem = xxh3_64_intdigest(text[at : at + _BLOCK], stem)
            stems.append(stem)
        whole = xxh3_64_intdigest(text[len(text) - len(text) % _BLOCK :], stem)
        known = self._prompts.get(whole)
        if known is not None:
            return known.head
        head = self._inherited(text, stems)
        if head is None:
            head = xxh3_64_intdigest(text, seed)
        self._remember(whole, _Prompt(stem, head), len(text) % _BLOCK)
        return head

    def _inherited(self, text: bytes, stems: list[int]) -> int | None:
        """The head of the longest remembered prompt that `text` goes on from."""
        tries = MOST_TRIES
        for index in range(len(stems) - 1, -1, -1):
            found = self._stems.get(stems[index])
            lengths = 0 if found is None else found.lengths
            while lengths:
                length = lengths.bit_length() - 1
                lengths ^= 1 << length
                start = index * _BLOCK
                if start + length > len(text):
                    continue
                if not tries:
                    return None
                tries -= 1
                known = self._prompts.get(xxh3_64_intdigest(text[start : start + length], stems[index]))
                if known is not None and known.heirs < MOST_HEIRS:
                    known.heirs += 1
                    return known.head
        return None

    def _remember(self, whole: int, prompt: _Prompt, length: int) -> None:
        stem = self._stems.get(prompt.stem)
        if stem is None:
            stem = self._stems[prompt.stem] = _Stem()
        stem.prompts += 1
        stem.lengths |= 1 << length
        self._prompts[whole] = prompt
        if len(self._prompts) > self._most:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, prompt = self._prompts.popitem(last=False)
        stem = self._stems[prompt.stem]
        stem.prompts -= 1
        if not stem.prompts:
            del self._stems[prompt.stem]
