"""Engines that have no room for the context of their requests, and caches that are not as cold as meant."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, names, number, percent

KV_FULL = 0.9
"""Used share of a KV cache from which on the next long request has to wait or push out another. vLLM counts
only what running requests hold, not what is kept for later."""

WARM = 0.01
"""Share of prompt tokens found in a cache from which on a run was not cold. What chat templates put before
every prompt may be found again; it is shorter than that."""

LOOKED_UP = 100
"""Prompt tokens below which a share says nothing."""


def kv_pressure(case: Case) -> Iterator[Verdict]:
    """A KV cache is full all the time, or engines push requests out to make room."""
    full = [member for member in case.members if member.kv is not None and member.kv.floor >= KV_FULL]
    preemptions = case.window.growths("replica", "engine_preemptions_total")
    pushed = {name: count for name, count in preemptions.items() if count}
    if not full and not pushed:
        return
    evidence = []
    if full:
        usage = max(member.kv.median for member in full if member.kv is not None)
        evidence.append(
            f"{counted(len(full), 'replica')} at or above {percent(KV_FULL)} of the KV cache all the time, "
            f"the fullest at {percent(usage)}: {names([member.name for member in full])}"
        )
    if pushed:
        evidence.append(
            f"{number(sum(pushed.values()))} preemptions: {names(sorted(pushed))}; what was computed for "
            "them is computed again"
        )
    concerned = {member.name for member in full} | set(pushed)
    yield Verdict(
        "kv_pressure",
        Side.ELSEWHERE,
        "KV caches of the engines are full",
        (*evidence, f"running {number(case.running)}, waiting {number(case.waiting.median)}"),
        "gpu_memory_utilization of the engines: raise it first (--gpu-memory-utilization); or halve what a "
        "token takes (--kv-cache-dtype fp8), or add replicas, or lower max_num_seqs, which ends preemptions",
        setting="gpu_memory_utilization",
        replica=concerned.pop() if len(concerned) == 1 else "",
    )


def not_cold(case: Case) -> Iterator[Verdict]:
    """Prompts were found in prefix caches in a run that was meant to find none."""
    if not case.expected.cold:
        return
    hits = case.window.growths("replica", "engine_prefix_hits_total")
    found = sum(hits.values())
    looked_up = case.window.growth("engine_prefix_queries_total")
    source = "prompt tokens that the engines looked up"
    if not looked_up:
        found = case.window.growth("tokens_total", kind="cached")
        looked_up = case.window.growth("tokens_total", kind="prompt")
        source = "prompt tokens of finished requests"
    if looked_up < LOOKED_UP or found < WARM * looked_up:
        return
    warm = sorted(name for name, count in hits.items() if count)
    yield Verdict(
        "not_cold",
        Side.ELSEWHERE,
        "The run is not cold: prompts are found in prefix caches",
        (
            (
                f"{percent(found / looked_up)} of the {source} were cached ({number(found)} of "
                f"{number(looked_up)})"
            ),
            *([f"at {names(warm)}"] if warm else []),
        ),
        "restart the engines or reset their prefix caches before the run, and give every prompt a beginning "
        "of its own",
    )
