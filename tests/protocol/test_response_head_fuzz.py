"""Spoilt response heads: refused with a reason, or sound. The long run:

FUZZ_SECONDS=180 python -m pytest -s -m fuzz tests/protocol/test_response_head_fuzz.py
"""

import os
import random
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.protocol.heads import VERBS, Spoiling, seeds, spoil, verdict

SEEDS = seeds()
SPOILINGS = st.lists(
    st.builds(
        Spoiling,
        verb=st.sampled_from(VERBS),
        at=st.floats(0, 1, exclude_max=True, allow_subnormal=False),
        size=st.integers(0, 12),
        piece=st.integers(0, 99),
    ),
    max_size=5,
)


@pytest.mark.parametrize("block", SEEDS)
def test_heads_of_real_servers_are_accepted(block: bytes) -> None:
    assert verdict(block) == "accepted"


@examples(600)
@given(st.sampled_from(SEEDS), SPOILINGS)
def test_a_spoilt_head_is_refused_or_sound(block: bytes, spoilings: list[Spoiling]) -> None:
    verdict(spoil(block, spoilings))


@examples(500)
@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_refused_or_sound(noise: bytes, begun: bool) -> None:
    verdict(b"HTTP/1.1 200 OK\r\n" + noise if begun else noise)


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_spoilt_heads_for_a_long_time() -> None:
    chance = random.Random(seed := random.SystemRandom().getrandbits(64))
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "180"))
    counts: Counter[str] = Counter()
    while time.monotonic() < end:
        block = spoil(chance.choice(SEEDS), [spoiling(chance) for _ in range(chance.randint(1, 6))])
        try:
            counts[verdict(block)] += 1
        except BaseException:
            print(f"seed {seed}, head {counts.total() + 1}: {block!r}")
            raise
    print(f"\n{counts.total()} heads (seed {seed})")
    for reason, count in counts.most_common():
        print(f"{count:10} {reason}")


def spoiling(chance: random.Random) -> Spoiling:
    return Spoiling(chance.choice(VERBS), chance.random(), chance.randint(0, 12), chance.randint(0, 99))
