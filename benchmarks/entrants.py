"""Who takes part in a comparison: a proxy, with so many workers and one policy."""

from dataclasses import dataclass

DIRECT = "direct"
"""The name of the row without a proxy: clients talk to the replicas in turn."""

OURS = "replicarouter"
BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Entrant:
    """One row of the tables. `policy` is a word of the proxy's own; "" is the one it has here by default."""

    proxy: str
    workers: int = 1
    policy: str = ""
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Return the name that the command line accepts, and the tables show."""
        options = [f"workers={self.workers}"] if self.workers != 1 and self.proxy != DIRECT else []
        options += [self.policy] if self.policy else []
        options += [f"{name}={value}" for name, value in self.flags]
        return f"{self.proxy}:{'+'.join(options)}" if options else self.proxy

    @property
    def is_ours(self) -> bool:
        """Tell whether this repository's router runs, in this version or another."""
        return self.proxy in {OURS, BEFORE}


def parse(text: str) -> Entrant:
    """Return what `PROXY[:OPTION[+OPTION…]]` names; raises ValueError.

    An option is `workers=N`, the name of a policy, or, for this router, `FLAG=VALUE` of `serve`.
    """
    proxy, _, options = text.partition(":")
    workers, policy, flags = 1, "", []
    for option in options.split("+") if options else []:
        name, equals, value = option.partition("=")
        if not equals:
            policy = name
        elif name == "workers":
            workers = int(value)
        else:
            flags.append((name, value))
    found = Entrant(proxy, workers, policy, tuple(flags))
    if found.flags and not found.is_ours:
        raise ValueError(f"{text}: {proxy} takes workers=N and a policy, nothing else")
    return found
