"""A diagnosis on a terminal."""

import pytest

from replicarouter.diagnosis.ledger import ledger
from replicarouter.diagnosis.text import WIDTH, conclusion, conclusion_lines, ledger_lines, verdict_lines
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.window import Window
from tests.diagnosis.pages import Change, Router, fleet, judged, snapshot, window


def huge(router: Router, _: float) -> None:
    router.connector_limit, router.connector_waiting, router.held = 100, 123456, 71.5
    for number, one in enumerate(router.replicas):
        one.name = f"a-replica-with-a-very-long-name-{number}.example.internal:8000"
        one.connecting, one.streaming, one.waiting, one.running = 15432, 123456, 0, 987654


@pytest.mark.parametrize("change", [huge])
def test_everything_fits_a_terminal_of_80_columns(change: Change) -> None:
    found = window(change)
    verdicts = judged(found)
    lines = ledger_lines(ledger(found.last)) + verdict_lines(found, verdicts)
    lines += conclusion_lines(found, verdicts) + conclusion_lines(found, [])
    assert len(conclusion(found, [])) > WIDTH
    assert [line for line in lines if len(line) > WIDTH] == []


def test_the_ledger_shows_the_stages_beside_the_engines_counts() -> None:
    def some(router: Router, _: float) -> None:
        router.receiving, router[0].waiting, router[1].fresh = 2, 3, False

    age, first, second, _, head, *rows = ledger_lines(ledger(window(some).last))
    assert age == "now (engine counts up to 400 ms old):"
    assert first == "in flight 130 = receiving 2 + queued 0 + connecting 0 + sent 0 + streaming 128"
    assert second == "engines: running 109, waiting 3, unexplained 0"
    assert head.split() == [
        "replica",
        "state",
        "connect",
        "sent",
        "stream",
        "running",
        "waiting",
        "unexpl",
        "KV",
    ]
    assert rows[0].split() == ["r0", "ready", "0", "0", "16", "13", "3", "0", "30%"]
    assert rows[1].split() == ["r1", "ready", "0", "0", "16", "-", "-", "-", "-"]


def test_long_names_keep_their_end_which_tells_them_apart() -> None:
    rows = ledger_lines(ledger(window(huge).last))[-8:]
    assert len({row.split()[0] for row in rows}) == 1
    assert all(row.split()[0].endswith(".internal:8000") for row in rows)


def test_a_screen_shows_some_of_many_replicas() -> None:
    lines = ledger_lines(ledger(window(replicas=20).last), 5)
    assert lines[-1] == "... and 15 more"
    assert lines[-2].startswith("r12")


def test_a_fleet_without_replicas_has_a_table_too() -> None:
    assert ledger_lines(ledger(snapshot(fleet(0, 0).page())))[-1] == "no replica"


def test_a_verdict_shows_its_evidence_and_the_one_setting() -> None:
    verdicts = [
        Verdict("one", Side.ROUTER, "First", ("seen 1", "seen 2"), "a.b: now 1; set it to 2", setting="a.b"),
        Verdict("two", Side.NOTE, "Second", (), "wait"),
    ]
    assert "\n".join(verdict_lines(window(), verdicts)) == (
        "\nover the 5 s, counts in the middle of it:\n"
        "\n1. First  [one: router]\n   - seen 1\n   - seen 2\n   change: a.b: now 1; set it to 2\n"
        "\n2. Second  [two: note]\n   do: wait"
    )


def test_the_moment_of_the_numbers_is_told_where_there_is_more_than_one() -> None:
    verdicts = [Verdict("one", Side.ROUTER, "First", (), "wait")]
    assert verdict_lines(window(looks=1), verdicts)[:2] == ["", "1. First  [one: router]"]
    unknown = Window([one.moved(0.0) for one in window().snapshots])
    assert verdict_lines(unknown, verdicts)[1] == "over the window, counts in the middle of it:"
    assert verdict_lines(window(), []) == []


def test_a_verdict_is_told_to_be_the_clients_or_an_engines() -> None:
    mine = Verdict("client_limited", Side.ELSEWHERE, "Few", (), "wait")
    theirs = Verdict("stalled_replica", Side.ELSEWHERE, "Still", (), "wait")
    lines = verdict_lines(window(looks=1), [mine, theirs])
    assert (lines[1], lines[4]) == ("1. Few  [client_limited: client]", "2. Still  [stalled_replica: engine]")


def test_a_long_title_leaves_its_code_a_line_of_its_own() -> None:
    fits, long, longer = (Verdict("one", Side.ROUTER, "T" * size, (), "wait") for size in (62, 63, 70))
    lines = verdict_lines(window(looks=1), [fits, long])
    assert lines[1] == f"1. {'T' * 62}  [one: router]"
    assert lines[4:6] == [f"2. {'T' * 63}", "   [one: router]"]
    words = Verdict("one", Side.ROUTER, f"{longer.title} and on and on", (), "wait")
    assert verdict_lines(window(looks=1), [words])[1:4] == [
        f"1. {'T' * 70} and on",
        "   and on",
        "   [one: router]",
    ]


def test_what_a_router_told_that_is_silent_now_is_not_of_now() -> None:
    first, *rest = ledger_lines(ledger(window().last), ago=3.24)
    assert first == "3.2 s ago (engine counts up to 400 ms old):"
    assert rest == ledger_lines(ledger(window().last))[1:]


def test_readings_that_are_gone_have_no_age() -> None:
    def silent(router: Router, _: float) -> None:
        for number, one in enumerate(router.replicas):
            one.fresh, one.age = False, 9.0 + number

    def late(router: Router, seconds: float) -> None:
        silent(router, seconds)
        router[3].fresh, router[3].age = True, 1.25

    assert ledger_lines(ledger(window(silent).last))[0] == "now:"
    assert ledger_lines(ledger(window(late).last))[0] == "now (engine counts up to 1.25 s old):"


def test_without_verdicts_the_engines_own_speed_limits() -> None:
    assert conclusion(window(), []) == (
        "Nothing limits but the engines' own speed: 128 running on 8 replicas, ITL 13.1 ms in the mean, "
        "TTFT 200 ms in the mean."
    )


def test_a_note_does_not_limit() -> None:
    note = Verdict("n", Side.NOTE, "Note", (), "wait")
    limit = Verdict("l", Side.ELSEWHERE, "Limit", ("seen", "more"), "act")
    assert conclusion(window(), [note]).startswith("Nothing limits")
    assert conclusion(window(), [note, limit]) == "Limit: seen. Do: act."


def test_where_nothing_happens_nothing_is_judged() -> None:
    def idle(router: Router, _: float) -> None:
        router.received = 500
        for one in router.replicas:
            one.streaming = 0

    text = conclusion(window(idle), [])
    assert text.startswith("No request is in flight and none came: there is nothing to judge. ")
    assert text.endswith("Only --expect-concurrency judges a client that does not come.")
    assert conclusion(window(idle, looks=1), []).startswith("No request is in flight: there is nothing")


def test_where_hardly_anything_happens_the_engines_do_not_limit() -> None:
    def now_and_then(router: Router, seconds: float) -> None:
        router.received = 500 + 2 * seconds
        for one in router.replicas:
            one.streaming = int(one.name == "r3" and seconds == 3)

    assert conclusion(window(now_and_then), []).startswith(
        "Hardly a request is in flight (10 requests came in 5 s): there is little to judge. Only "
    )


def test_engines_that_do_not_tell_what_they_run_are_not_said_to_run_nothing() -> None:
    def untold(router: Router, _: float) -> None:
        for one in router.replicas:
            one.fresh = False

    assert conclusion(window(untold), []).startswith(
        "Nothing limits but the engines' own speed: 128 requests in flight on 8 replicas, "
    )
