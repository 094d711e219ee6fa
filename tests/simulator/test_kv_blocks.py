import pytest

from replicarouter.simulator.kv_blocks import KvBlocks


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)])
def test_tokens_need_whole_blocks(tokens: int, blocks: int) -> None:
    assert KvBlocks(100, 16).needed(tokens) == blocks


def test_taking_is_all_or_nothing() -> None:
    pool = KvBlocks(10, 16)
    assert pool.take(7)
    assert not pool.take(4)
    assert pool.free == 3
    assert pool.usage == pytest.approx(0.7)
    pool.give_back(7)
    assert pool.usage == 0
