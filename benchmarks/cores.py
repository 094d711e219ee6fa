"""Which processors there are, and who gets which."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the processes are pinned: a proxy with N workers has the first N of its list."""

    proxy: Sequence[int]
    tools: Sequence[int]

    @property
    def overlap(self) -> bool:
        """Tell whether proxies and tools have a core in common: then rates and latencies say nothing."""
        return bool(set(self.proxy) & set(self.tools))


def parse(text: str) -> list[int]:
    """Return the processors of a list as of `taskset -c`, in its order: "0-3,8"; raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last) + 1) if dash else [int(first)]
    return found


def joined(cores: Iterable[int]) -> str:
    """Return the list as text."""
    return ",".join(map(str, cores))


def chosen(workers: int) -> Cores:
    """Return a choice: real cores for so many workers, all others for the tools.

    Two threads of one core share it, so the proxy gets one thread of each of its cores, and the
    other stays free. On a machine that is too small for that, proxies and tools share processors.
    """
    all_cores = sorted(os.sched_getaffinity(0))
    firsts = [core for core in all_cores if core == min(_siblings(core, all_cores))]
    proxy = (firsts if len(firsts) > workers else all_cores)[:workers]
    taken = {sibling for core in proxy for sibling in _siblings(core, all_cores)}
    tools = [core for core in all_cores if core not in taken]
    tools = tools or [core for core in all_cores if core not in proxy] or all_cores
    return Cores(proxy, tools)


def _siblings(core: int, usable: Sequence[int]) -> list[int]:
    """Return the processors that are threads of the same core, itself among them."""
    try:
        found = parse(Path(_SIBLINGS.format(core)).read_text().strip())
    except (OSError, ValueError):
        return [core]
    return [each for each in found if each in usable] or [core]
