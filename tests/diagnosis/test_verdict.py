"""What a check hands on."""

import json

from replicarouter.diagnosis.verdict import Expectations, Side, Verdict


def test_a_verdict_is_a_document_with_all_its_fields() -> None:
    verdict = Verdict("code", Side.ROUTER, "title", ("one", "two"), "cure", setting="a.b", replica="r")
    document = verdict.document()
    assert json.loads(json.dumps(document)) == {
        "code": "code",
        "side": "router",
        "title": "title",
        "evidence": ["one", "two"],
        "cure": "cure",
        "setting": "a.b",
        "replica": "r",
    }
    assert set(document) == set(Verdict.__dataclass_fields__)


def test_nothing_is_expected_unless_it_is_said() -> None:
    assert Expectations() == Expectations(concurrency=None, cold=False)
