"""Counts what Python does: calls of functions, instructions of their bytecode, calls of C functions.

No clock is read, so that the same work gives the same count on any machine, however busy. Only the thread
that starts the counter is counted. What an event loop runs for its own sake (a background turn) is left out
by the function it begins with.
"""

import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

CALLS, INSTRUCTIONS, C_CALLS, WITHIN = range(4)
"""Places in a row: entries and resumptions of a function, its own bytecode instructions, the C functions it
called, and the instructions of all that ran between its entries and exits, itself among them."""

Row = list[int]


@dataclass(slots=True)
class Sample:
    """What happened between two cuts: a row for each function; how often a callback of the loop or a step of
    a task began with it; how often it called which C function."""

    rows: dict[CodeType, Row] = field(default_factory=dict)
    turns: dict[CodeType, int] = field(default_factory=dict)
    c_calls: dict[tuple[CodeType, str], int] = field(default_factory=dict)


class Counter:
    """Counts from `start` to `stop`, both called in one callback of the loop or another.

    `ignored`: functions with which a turn of the loop may begin that is none of our business.
    """

    def __init__(self, ignored: Collection[CodeType]) -> None:
        self._ignored = frozenset(ignored)
        self._base: FrameType | None = None
        self._live = False
        self._instructions = 0
        self._entered: list[int] = []
        self._sample = Sample()
        self.made: dict[CodeType, str] = {}
        """Names of functions that were made of text, as dataclasses and named tuples do."""

    def start(self, base: FrameType) -> None:
        """Count from the next turn on. `base` is the frame from which the loop runs its callbacks."""
        self._base, self._live = base, False
        # Python 3.12 looks for a frame that wants this only when tracing begins.
        sys._getframe().f_trace_opcodes = True  # noqa: SLF001
        sys.setprofile(self._profile)
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Count no more."""
        sys.settrace(None)
        sys.setprofile(None)
        self._live = False

    def cut(self) -> Sample:
        """What happened since the last cut."""
        sample, self._sample = self._sample, Sample()
        return sample

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if frame.f_back is self._base:
            self._live = code not in self._ignored
            self._entered.clear()
            if self._live:
                self._sample.turns[code] = self._sample.turns.get(code, 0) + 1
        # Also where nothing is counted: a function is instrumented for good when it is first traced.
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if not self._live:
            return self._within
        if code.co_filename == "<string>" and code not in self.made:
            self.made[code] = _made_for(frame)
        self._row(code)[CALLS] += 1
        self._entered.append(self._instructions)
        return self._within

    def _within(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not self._live:
            return self._within
        if event == "opcode":
            self._instructions += 1
            self._row(frame.f_code)[INSTRUCTIONS] += 1
        elif event == "return" and self._entered:
            self._row(frame.f_code)[WITHIN] += self._instructions - self._entered.pop()
        return self._within

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "c_call" or not self._live:
            return
        self._row(frame.f_code)[C_CALLS] += 1
        owner = getattr(arg, "__module__", None) or type(getattr(arg, "__self__", None)).__name__
        key = (frame.f_code, f"{owner}.{arg.__name__}")
        self._sample.c_calls[key] = self._sample.c_calls.get(key, 0) + 1

    def _row(self, code: CodeType) -> Row:
        rows = self._sample.rows
        row = rows.get(code)
        if row is None:
            row = rows[code] = [0, 0, 0, 0]
        return row


def _made_for(frame: FrameType) -> str:
    """The class whose method it is, by its first argument."""
    code = frame.f_code
    first = frame.f_locals[code.co_varnames[0]] if code.co_argcount else None
    owner = first if isinstance(first, type) else type(first)
    return f"{owner.__module__.replace('.', '/')}.py:{owner.__qualname__}.{code.co_name}"
