"""What does a request cost, and a streamed event, in calls and in bytecode instructions? Counted, not timed:
the same on every machine, and on a busy one.

    python -m benchmarks.call_cost                              # all scenarios, by function
    python -m benchmarks.call_cost --scenarios chunk --top 0 --c-calls
    python -m benchmarks.call_cost --save /tmp/before.json      # then change something, and
    python -m benchmarks.call_cost --against /tmp/before.json   # see which functions cost more or less
    python -m benchmarks.call_cost --callgrind --scenarios chunk  # machine instructions, C code included
    python -m benchmarks.call_cost --check                      # against the budget of this Python version
    python -m benchmarks.call_cost --write-budget               # what it costs now is the budget
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.call_budget import Budget, verdicts
from benchmarks.call_machine import MEASUREMENTS, lines_of
from benchmarks.call_scenarios import PLACES, SCENARIOS, SUMMED, Count, measure, package_of
from benchmarks.call_stage import Failed

OURS = "replicarouter"


def table(count: Count, arguments: argparse.Namespace) -> list[str]:
    """The functions, dearest first; then what turns of the loop there were."""
    place = PLACES[arguments.sort.replace("c-", "C ")]
    rows = sorted(count.rows.items(), key=lambda item: (-item[1][place], item[0]))
    if arguments.ours:
        rows = [item for item in rows if package_of(item[0]) == OURS]
    lines = [f"{'calls':>7}{'instr.':>8}{'C calls':>8}{'within':>8}  function"]
    for name, row in rows[: arguments.top or None]:
        lines.append(f"{row[0]:>7}{row[1]:>8}{row[2]:>8}{row[3]:>8}  {name}")
    if arguments.top and len(rows) > arguments.top:
        lines.append(f"{'':>31}  … and {len(rows) - arguments.top} more (--top 0)")
    lines.append("turns of the loop that begin with:")
    lines += [
        f"{number:>7}  {name}" for name, number in sorted(count.turns.items(), key=lambda item: -item[1])
    ]
    if arguments.c_calls:
        lines.append("C functions called:")
        calls = sorted(count.c_calls.items(), key=lambda item: (-item[1], item[0]))
        lines += [f"{number:>7}  {name}" for name, number in calls]
    return lines


def summary(name: str, count: Count) -> list[str]:
    """A scenario's totals by package, ours first."""
    lines = [f"{name}: {SCENARIOS[name].what}; {count.alike:.0%} of them cost just so"]
    packages = {package_of(one) for one in count.rows} - {OURS}
    lines.append(f"{'calls':>7}{'instr.':>8}{'C calls':>8}")
    for package in ("", OURS, *sorted(packages)):
        calls, instructions, c_calls = (count.total(what, package) for what in SUMMED)
        lines.append(f"{calls:>7}{instructions:>8}{c_calls:>8}  {package or 'all'}")
    return lines


def difference(before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]]) -> list[str]:
    """The functions that changed, the largest growth first."""
    changed = []
    for name in before.keys() | now.keys():
        old, new = before.get(name, (0, 0, 0, 0)), now.get(name, (0, 0, 0, 0))
        if list(old[:3]) != list(new[:3]):
            changed.append((new[1] - old[1], new[0] - old[0], new[2] - old[2], name))
    changed.sort(key=lambda one: (-one[0], -one[1], one[3]))
    return [f"{one[1]:>+7}{one[0]:>+8}{one[2]:>+8}  {one[3]}" for one in changed]


def arguments_of() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="default: %(default)s")
    parser.add_argument("--top", type=int, default=40, metavar="N", help="functions shown; 0: all")
    parser.add_argument(
        "--sort", choices=("instructions", "within", "calls", "c-calls"), default="instructions"
    )
    parser.add_argument("--ours", action="store_true", help="our own functions only")
    parser.add_argument("--c-calls", action="store_true", help="which C functions are called from where")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the counts as JSON")
    parser.add_argument("--against", type=Path, metavar="FILE", help="show what changed since that was saved")
    parser.add_argument(
        "--check", action="store_true", help="say what is over the budget; status 1 if anything"
    )
    parser.add_argument("--callgrind", action="store_true", help="count machine instructions, with Valgrind")
    parser.add_argument("--write-budget", action="store_true", help="make what was found the budget")
    return parser.parse_args()


def main() -> None:
    """Count, and print."""
    arguments = arguments_of()
    names = arguments.scenarios.split(",")
    if unknown := set(names) - set(SCENARIOS):
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    try:
        if arguments.callgrind:
            for name in (one for one in names if one in MEASUREMENTS):
                print("\n".join(lines_of(name, MEASUREMENTS[name](), arguments.top)))
            return
        found = measure(names)
    except Failed as error:
        raise SystemExit(str(error)) from None
    for name, count in found.items():
        print("\n".join(summary(name, count)))
        if name in before:
            print("change:")
            print("\n".join(difference(before[name]["rows"], count.rows)) or "      0")
        else:
            print("\n".join(table(count, arguments)))
        print()
    if arguments.save:
        arguments.save.write_text(json.dumps({name: asdict(count) for name, count in found.items()}))
    if arguments.write_budget:
        print(f"written: {Budget.of(found).write()}")
    if arguments.check and (wrong := verdicts(Budget.read(), found)):
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
