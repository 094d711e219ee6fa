import pytest

from replicarouter.simulator.faults import KINDS, LOADING, Fault, make_fault


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_needs_no_more_than_its_name(kind: str) -> None:
    fault = make_fault({"kind": kind})
    assert fault.kind == kind
    assert fault.seconds is None
    assert set(fault.as_json()) == {"kind", *KINDS[kind].takes}


def test_what_is_said_is_kept() -> None:
    fault = make_fault({"kind": "reset", "at": 3, "count": 2, "share": 0.5, "seed": 9, "seconds": 1.5})
    assert fault == Fault(kind="reset", at=3, count=2, share=0.5, seed=9, seconds=1.5)


def test_slow_is_of_every_step_or_of_each_request() -> None:
    assert make_fault({"kind": "slow", "factor": 3}) == Fault(kind="slow", factor=3)
    assert make_fault({"kind": "slow", "delay": 3, "count": 1}) == Fault(kind="delay", delay=3, count=1)


def test_garbage_is_in_the_head_unless_said_otherwise() -> None:
    assert make_fault({"kind": "garbage"}).at == "head"
    assert make_fault({"kind": "garbage", "at": 2}).at == 2


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({}, "kind is None; accepted: hang, "),
        ({"kind": "nonsense"}, "kind is 'nonsense'; accepted: hang, "),
        ({"kind": ["hang"]}, "kind is "),
        ({"kind": "hang", "after": 3}, "hang takes no after; accepted: at, count, on, "),
        ({"kind": "refuse", "count": 1}, "refuse takes no count; accepted: seconds"),
        ({"kind": "hang", "at": "tail"}, "at is 'tail'; accepted: start, head, or a number"),
        ({"kind": "hang", "at": -1}, "at is -1"),
        ({"kind": "hang", "at": True}, "at is True"),
        ({"kind": "hang", "seconds": 0}, "seconds is 0; accepted: more than 0"),
        ({"kind": "hang", "seconds": "1"}, "seconds is '1'"),
        ({"kind": "hang", "count": 0}, "count is 0; accepted: 1 or more"),
        ({"kind": "hang", "count": 1.5}, "count is 1.5"),
        ({"kind": "hang", "share": 1.1}, "share is 1.1; accepted: 0 to 1"),
        ({"kind": "hang", "on": "chat"}, "on is 'chat'; accepted: generations, probes, all"),
        ({"kind": "status", "status": 200}, "status is 200; accepted: 400 to 599"),
        ({"kind": "status", "reason": "tired"}, "reason is 'tired'; accepted: busy, loading"),
        ({"kind": "slow", "factor": 0}, "factor is 0"),
        ({"kind": "delay", "delay": -1}, "delay is -1"),
        ({"kind": "keep_alive", "idle": 0}, "idle is 0"),
        ({"kind": "connection_close_every", "every": 0}, "every is 0"),
        ({"kind": "flapping", "how": "wildly"}, "how is 'wildly'; accepted: health, refuse"),
    ],
)
def test_what_makes_no_sense_is_named(said: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=r"accepted: ") as refused:
        make_fault(said)
    assert str(refused.value).startswith(complaint)


def test_loading_consists_of_faults_that_can_be_said() -> None:
    for fault in LOADING.values():
        assert make_fault(fault.as_json()) == fault
