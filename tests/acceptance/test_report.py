"""The table and the document."""

from replicarouter.acceptance.finding import Finding, Result, Status, failed, passed, skipped
from replicarouter.acceptance.report import accepted, closing, document, heading, row
from tests.acceptance.test_scene import replica, scene

LONG = "the engines differ in " + ", ".join(f"setting-{number}" for number in range(30))


def result(finding: Finding, model: str = "") -> Result:
    return Result(name="same-answers", model=model, finding=finding, seconds=1.0)


def test_lines_fit_and_words_stay_whole() -> None:
    lines = row(result(failed(LONG, "do something about it")), 80, with_model=False).plain.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(line == line.rstrip() for line in lines)
    assert lines[0].split()[:2] == ["same-answers", "FAIL"]
    assert " ".join(" ".join(lines).split()).removeprefix("same-answers FAIL ") == (
        f"{LONG} cure: do something about it"
    )
    assert all(line.startswith(" " * 24) for line in lines[1:])


def test_flags_are_never_cut_in_two() -> None:
    flags = [f"--a-flag-{'x' * number}-of-many" for number in range(20)]
    shown = row(result(failed("no", " ".join(flags))), 80, with_model=False).plain.split()
    assert [word for word in shown if word.startswith("--")] == flags


def test_the_model_is_told_where_there_are_several() -> None:
    assert "m1: fine" in row(result(passed("fine"), "m1"), 80, with_model=True).plain
    assert "m1" not in row(result(passed("fine"), "m1"), 80, with_model=False).plain


def test_only_failures_make_it_fail() -> None:
    warned = Finding(status=Status.WARN, why="hm")
    assert accepted([result(passed("fine")), result(warned)])
    assert not accepted([result(passed("fine")), result(failed("no"))])


def test_the_end_tells_counts_and_what_it_cost() -> None:
    seen = scene([{"id": "a"}], replica("x", "a"))
    seen.meter.requests, seen.meter.prompt_tokens, seen.meter.completion_tokens = 3, 1200, 40
    told = " ".join(closing(seen, [result(passed("fine")), result(failed("no"))], 80).plain.split())
    assert told == ("not accepted: 1 passed, 1 failed; 3 requests sent, 1,200 prompt and 40 generated tokens")


def test_the_heading_names_what_is_looked_at() -> None:
    seen = scene([{"id": "a"}], replica("x", "a"), replica("y", "a"))
    assert "http://router: a router and 2 replicas: x, y" in heading(seen, 80).plain
    assert "a router and 1 replica: x" in heading(scene([], replica("x", "a")), 80).plain
    assert "a single engine" in heading(scene([], router=False), 80).plain


def test_the_heading_says_that_replicas_are_not_known_and_what_helps() -> None:
    blind = failed("the admin API at http://h:8081 answers 401: it wants a token", "give --token")
    told = heading(scene([], blind=blind), 80).plain
    assert all(len(line) <= 80 for line in told.splitlines())
    assert " ".join(told.split()).startswith(
        "http://router: a router; its replicas are NOT known: the admin API at http://h:8081 answers 401:"
        " it wants a token (give --token)"
    )
    assert document(scene([], blind=blind), [])["replicas_unknown"] == blind.why
    meant = skipped("only the router is checked (--router-only)")
    assert "a router; only the router is checked" in heading(scene([], blind=meant), 80).plain


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    for more in range(40):
        text = f"{'x' * more} 12 ms; 4 streams: 1.20 s"
        lines = row(result(passed(text)), 60, with_model=False).plain.splitlines()
        assert not any(line.split()[0] in {"ms;", "streams:", "s"} for line in lines[1:])
        assert "\N{NO-BREAK SPACE}" not in "".join(lines)


def test_a_document_has_it_all() -> None:
    seen = scene([{"id": "a"}], replica("x", "a"))
    told = document(seen, [result(failed("no", "yes"), "a")])
    assert told["accepted"] is False
    assert told["counts"] == {"pass": 0, "warn": 0, "fail": 1, "skipped": 0}
    assert told["replicas_unknown"] is None
    assert told["replicas"] == [{"name": "x", "url": "http://x", "models": ["a"]}]
    assert told["results"][0]["cure"] == "yes"
