"""What engines tell of themselves: whether they do, and whether those of one pool are alike."""

from collections.abc import Iterator, Mapping

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.checks.router_process import router_cpu
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import names, number, seconds

BLINDING = ("requests_running", "requests_waiting", "running_reqs", "queue_reqs")
"""How the series end without which nobody knows where requests are; others are only missed."""

SILENT_ENGINE = "generic"
"""The name of an engine whose metrics the router cannot read: nothing is missing there."""


def readings_missing(case: Case) -> Iterator[Verdict]:
    """Ready replicas of which the router has no fresh reading. Those that never gave one are only noted."""
    last = case.window.last
    generic = {row.get("replica", "") for row, _ in last.rows("engine_info", engine=SILENT_ENGINE)}
    ages = last.by("replica", "engine_scrape_age_seconds")
    silent = [member.name for member in case.takers if member.running is None and member.name not in generic]
    # A router that is late with everything is late with its readings too.
    if not silent or any(router_cpu(case)):
        return
    lost = [name for name in silent if name in ages]
    evidence = [f"no fresh reading of {names(silent)}"]
    if lost:
        evidence.append(f"the last one is {seconds(max(ages[name] for name in lost))} old")
    yield Verdict(
        "readings_missing",
        Side.ELSEWHERE if lost else Side.NOTE,
        "Engines do not tell what they run",
        tuple(evidence),
        "look whether `/metrics` of the engine answers; without it nobody knows what waits there",
        replica=silent[0] if len(silent) == 1 else "",
    )


def series_missing(case: Case) -> Iterator[Verdict]:
    """An engine's page lacks series that its kind of engine should have."""
    last = case.window.last
    missing = {name: count for name, count in last.by("replica", "engine_series_missing").items() if count}
    kinds: dict[str, set[str]] = {}
    for row, value in last.rows("engine_series_absent"):
        if value:
            kinds.setdefault(row.get("replica", ""), set()).add(row.get("kind", ""))
    replicas = sorted(missing.keys() | kinds.keys())
    if not replicas:
        return
    series = sorted({kind for found in kinds.values() for kind in found})
    count = max(missing.values(), default=float(len(series)))
    blind = not series or any(one.endswith(BLINDING) for one in series)
    yield Verdict(
        "series_missing",
        Side.ELSEWHERE if blind else Side.NOTE,
        "Engines lack metrics that the router goes by",
        (
            f"{number(count)} series missing at {names(replicas)}",
            *([f"absent: {names(series)}"] if series else []),
        ),
        "look for a renamed metric in the engine's release notes, or for a flag that turns its statistics "
        "off (--disable-log-stats)",
        replica=replicas[0] if len(replicas) == 1 else "",
    )


def engines_differ(case: Case) -> Iterator[Verdict]:
    """Engines of one pool that are not alike, as far as they tell."""
    last = case.window.last
    facts: dict[str, dict[str, str]] = {"engine": {}, "version": {}, "model": {}, "cache dtype": {}}
    for row, _ in last.rows("engine_info"):
        for fact in ("engine", "version", "model"):
            _note(facts[fact], row.get("replica", ""), row.get(fact, ""))
    for row, value in last.rows("engine_cache_dtype_info"):
        if value:
            _note(facts["cache dtype"], row.get("replica", ""), row.get("kind", ""))
    lengths = last.by("replica", "engine_max_length_tokens")
    facts["max length"] = {name: number(length) for name, length in lengths.items()}
    told: set[str] = set()
    for pool in case.pools:
        members = [member.name for member in pool.members]
        evidence = [text for fact, values in facts.items() if (text := _difference(fact, values, members))]
        fresh = [text for text in evidence if text not in told]
        if not fresh:
            continue
        told.update(fresh)
        yield Verdict(
            "engines_differ",
            Side.ELSEWHERE,
            f"Engines of {pool.model} differ" if pool.model else "Engines of one pool differ",
            (
                *fresh,
                (
                    "compared: engine, version, model, max length and cache dtype; no engine tells the "
                    "dtype of its weights"
                ),
            ),
            "start all engines of a pool from one command line",
        )


def _note(values: dict[str, str], replica: str, value: str) -> None:
    if value:
        values[replica] = value


def _difference(fact: str, values: Mapping[str, str], members: list[str]) -> str:
    """What replicas say where it is not the same; empty where it is, or where nobody says anything."""
    by_value: dict[str, list[str]] = {}
    for name in members:
        if name in values:
            by_value.setdefault(values[name], []).append(name)
    if len(by_value) < 2:
        return ""
    return f"{fact}: " + "; ".join(f"{value} at {names(found)}" for value, found in sorted(by_value.items()))


def engine_restarted(case: Case) -> Iterator[Verdict]:
    """An engine began anew within the window: what it had cached and was working on is lost."""
    restarts = case.window.growths("replica", "engine_restarts_total")
    found = sorted(name for name, count in restarts.items() if count > 0)
    if not found:
        return
    yield Verdict(
        "engine_restarted",
        Side.ELSEWHERE,
        "An engine was restarted within the window",
        (f"restarted: {names(found)}; its counters began anew and its caches are empty",),
        "look at its log for why, and measure again",
        replica=found[0] if len(found) == 1 else "",
    )
