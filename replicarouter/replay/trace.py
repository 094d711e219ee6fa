"""Traces of requests as demand: JSON lines as Mooncake publishes them and as AIPerf extends them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from xxhash import xxh3_64_intdigest

from replicarouter.replay.demand import Conversation, Turn, digest
from replicarouter.replay.growth import GrowingPrompt
from replicarouter.replay.trace_line import TOKEN_CHARACTERS, BadLine, Line, read_line

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens of one hash id in the traces of Mooncake (FAST'25 release)."""


class TraceError(Exception):
    """A trace cannot be read or used; the message names the file, the line and what was expected."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a trace is used. `block_tokens`: of one hash id, or of one block of its texts.

    `speedup` divides its arrival times (think times stay); `rate` instead asks for so many requests a
    second on the average. `requests` of it are taken, 0 for all; prompts above `longest_prompt` tokens
    are left out, 0 for no bound. `whole_prompts`: what a turn of a session has is its whole prompt, not
    what it adds.
    """

    block_tokens: int = MOONCAKE_BLOCK_TOKENS
    speedup: float = 1.0
    rate: float = 0.0
    requests: int = 0
    longest_prompt: int = 0
    whole_prompts: bool = False


class Trace:
    """A trace that has been read. `skipped` of its requests had too long a prompt."""

    concurrency = 0
    settles: float | None = None

    def __init__(self, name: str, lines: list[list[Line]], options: TraceOptions) -> None:
        self.name = name
        self.block_tokens = options.block_tokens
        self.skipped = 0
        self._options = options
        self._sessions = lines
        first = [one[0].timestamp for one in lines]
        self._timed = all(timestamp is not None for timestamp in first)
        if not self._timed and not options.rate:
            raise TraceError(f"{name}: not every request has a timestamp; say how many come in a second")
        stamps = [line.timestamp for session in lines for line in session if line.timestamp is not None]
        self._start = min(stamps, default=0.0)
        self._requests = sum(map(len, lines))
        self._speedup = options.speedup
        span = (max(stamps, default=0.0) - self._start) / 1000
        if options.rate and self._timed and span:
            self._speedup = options.rate * span / self._requests

    @property
    def requests(self) -> int:
        """How many requests it has, those left out aside."""
        return self._requests

    @property
    def has_sessions(self) -> bool:
        """Whether a request names its session."""
        return any(one[0].session is not None for one in self._sessions)

    @property
    def can_share(self) -> bool:
        """Whether prompts may have anything in common: by ids or texts, or as turns of one session."""
        return any(
            len(session) > 1 or session[0].hash_ids is not None or session[0].text is not None
            for session in self._sessions
        )

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Its sessions, and each request without one by itself; `seed` matters without timestamps only."""
        random = Random(digest(seed, self._requests))
        now = 0.0
        for serial, session in enumerate(self._sessions):
            if self._timed:
                now = self._moment(session[0])
            else:
                now += random.expovariate(self._options.rate * len(self._sessions) / self._requests)
            yield Conversation(now, self._turns(serial, session))

    def _moment(self, line: Line) -> float:
        assert line.timestamp is not None
        return (line.timestamp - self._start) / 1000 / self._speedup

    def _turns(self, serial: int, session: list[Line]) -> Iterator[Turn]:
        if session[0].session is None:
            yield self._alone(serial, session[0])
            return
        key = xxh3_64_intdigest(session[0].session.encode())
        prompt = GrowingPrompt(key, self.block_tokens)
        for number, line in enumerate(session):
            turn = self._turn_of(line, prompt, serial=serial, first=number == 0)
            turn.session = turn.head = key
            if line.delay is not None:
                turn.delay = line.delay / 1000
            elif line.timestamp is not None and self._timed:
                turn.at = self._moment(line)
            yield turn

    def _turn_of(self, line: Line, prompt: GrowingPrompt, *, serial: int, first: bool) -> Turn:
        if self._options.whole_prompts or not line.added:
            return self._alone(serial, line)
        if first:
            blocks = self._blocks(serial, line)[: line.input_tokens // self.block_tokens]
            prompt.begin(blocks)
            prompt.grow(line.input_tokens - prompt.tokens)
        else:
            prompt.grow(line.input_tokens)
        tokens, blocks_now = prompt.tokens, prompt.blocks()
        prompt.grow(line.output_tokens)
        return Turn(tokens, line.output_tokens, blocks_now, prompt.blocks())

    def _alone(self, serial: int, line: Line) -> Turn:
        blocks = self._blocks(serial, line)
        return Turn(
            line.input_tokens, line.output_tokens, blocks, head=digest(*blocks[:2]) if blocks else None
        )

    def _blocks(self, serial: int, line: Line) -> list[int]:
        size = self.block_tokens
        if line.hash_ids is not None:
            return [digest(one) for one in line.hash_ids]
        if line.text is not None:
            return _text_blocks(line.text, size * TOKEN_CHARACTERS)
        return [digest(serial, position, -1) for position in range(line.input_tokens // size)]


def read_trace(path: Path, options: TraceOptions) -> Trace:
    """Read a file; raises `TraceError`."""
    try:
        with path.open("rb") as file:
            lines, skipped = _lines(file, str(path), options)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    if not lines:
        raise TraceError(f"{path}: there is no request in it")
    trace = Trace(path.stem, _sessions(lines), options)
    trace.skipped = skipped
    return trace


def _lines(file: Iterable[bytes], name: str, options: TraceOptions) -> tuple[list[Line], int]:
    lines: list[Line] = []
    skipped = 0
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        if options.requests and len(lines) >= options.requests:
            break
        try:
            line = read_line(text)
        except BadLine as error:
            raise TraceError(f"{name}, line {number}: {error}") from None
        if line.hash_ids is not None and not _fits(line, options.block_tokens):
            size = options.block_tokens
            needed = -(-line.input_tokens // size)
            raise TraceError(
                f"{name}, line {number}: {len(line.hash_ids)} hash_ids for {line.input_tokens} tokens; "
                f"with blocks of {size} tokens {needed} are expected: is the block size right?"
            )
        if options.longest_prompt and line.input_tokens > options.longest_prompt:
            skipped += 1
            continue
        lines.append(line)
    return lines, skipped


def _fits(line: Line, block_tokens: int) -> bool:
    """Whether there are as many ids as blocks, the last one being told or not when it is not full."""
    assert line.hash_ids is not None
    return len(line.hash_ids) in {line.input_tokens // block_tokens, -(-line.input_tokens // block_tokens)}


def _sessions(lines: list[Line]) -> list[list[Line]]:
    """Lines of one session together, in their order; the sessions in the order of their first request."""
    sessions: list[list[Line]] = []
    known: dict[str, list[Line]] = {}
    for line in lines:
        if line.session is None:
            sessions.append([line])
        elif line.session in known:
            known[line.session].append(line)
        else:
            known[line.session] = [line]
            sessions.append(known[line.session])
    if any((one[0].timestamp or 0) > (other[0].timestamp or 0) for one, other in pairwise(sessions)):
        sessions.sort(key=lambda session: session[0].timestamp or 0.0)
    return sessions


def _text_blocks(text: bytes, size: int) -> list[int]:
    blocks: list[int] = []
    chain = 0
    for start in range(0, len(text) - size + 1, size):
        chain = xxh3_64_intdigest(text[start : start + size], seed=chain)
        blocks.append(chain)
    return blocks
