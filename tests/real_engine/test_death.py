"""A real engine dies and comes back."""

from collections.abc import Iterator

import openai
import pytest

from tests.real_engine.rig import CONTEXT, HOST, MODEL, EngineFleet, RouterProcess, total, wait_until

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

SOON = 10.0
QUESTIONS = 20
FORGIVEN = 30.0
"""Seconds for the policy to forget the failures of the dying replica; until then an idle one is preferred."""


def ask(client: openai.OpenAI) -> str:
    """A short chat; the name of the replica that answered."""
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "Tell me about lists."}], max_tokens=4
    )
    assert answer.parse().choices[0].message.content
    return str(answer.headers["X-Replicarouter-Replica"])


def is_ready(router: RouterProcess, port: int) -> bool:
    state = {"replica": f"{HOST}:{port}", "state": "ready"}
    return total(router.port, "replicarouter_replica_state", **state) == 1


@pytest.fixture
def victim(client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess) -> Iterator[int]:
    """The port of a replica that the test may kill; afterwards it serves again as if nothing had been."""
    port = fleet.ports[1]
    yield port
    if not fleet.lives(port):
        fleet.start([port])
        wait_until(lambda: is_ready(router, port), "the replica is back", deadline=SOON)
    wait_until(lambda: ask(client) == f"{HOST}:{port}", "its failures are forgiven", deadline=FORGIVEN)


def test_killed_replica_is_left_out_until_it_serves_again(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess, victim: int
) -> None:
    dead, both = f"{HOST}:{victim}", {f"{HOST}:{port}" for port in fleet.ports}
    assert {ask(client) for _ in range(4)} == both
    restarts = total(router.port, "replicarouter_engine_restarts_total", replica=dead)

    fleet.kill(victim)
    assert {ask(client) for _ in range(QUESTIONS)} == both - {dead}
    wait_until(lambda: not is_ready(router, victim), "the death is noticed", deadline=SOON)

    fleet.start([victim])
    wait_until(lambda: is_ready(router, victim), "the replica is back", deadline=SOON)
    wait_until(lambda: ask(client) == dead, "it gets requests again", deadline=FORGIVEN)
    wait_until(
        lambda: total(router.port, "replicarouter_engine_restarts_total", replica=dead) == restarts + 1,
        "the restart is counted",
        deadline=SOON,
    )


def test_stream_of_a_killed_replica_does_not_look_finished_and_others_go_on(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess, victim: int
) -> None:
    tokens = CONTEXT // 4
    streams = {}
    for _ in fleet.ports:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Tell me about lists."}],
            max_tokens=tokens,
            extra_body={"ignore_eos": True},
            stream=True,
        )
        streams[stream.response.headers["X-Replicarouter-Replica"]] = stream
    dying = streams.pop(f"{HOST}:{victim}")
    (living,) = streams.values()
    next(chunk for chunk in dying if chunk.choices[0].delta.content)
    fleet.kill(victim)
    with dying, pytest.raises(openai.APIError) as broken:
        list(dying)
    assert broken.value.code == "replica_disconnected"
    with living:
        assert list(living)[-1].choices[0].finish_reason == "length"
    wait_until(lambda: router.ledger()["accepted"] == 0, "nothing is left", deadline=SOON)
