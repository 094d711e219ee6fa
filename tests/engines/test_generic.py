from collections.abc import Callable

from replicarouter.engines import DIALECTS, PARSER, EngineReading


def test_a_page_of_an_unknown_engine_is_read_as_unknown(page: Callable[[str], bytes]) -> None:
    samples = PARSER.parse(page("llama.cpp-2026.10.11549-under-load"))

    assert DIALECTS["generic"].read(samples) == EngineReading()


def test_even_the_page_of_a_known_engine_is_read_as_unknown(page: Callable[[str], bytes]) -> None:
    samples = PARSER.parse(page("vllm-0.32.0-under-load"))

    assert DIALECTS["generic"].read(samples) == EngineReading()
