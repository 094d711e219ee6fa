"""How each engine software speaks: one dialect a file, all of them in `DIALECTS`.

samples = PARSER.parse(page)
reading = detect(samples).read(samples)
"""

from replicarouter.engines import sglang, vllm
from replicarouter.engines.base import Dialect, EngineReading, Samples
from replicarouter.engines.exposition import PageParser
from replicarouter.engines.generic import GenericDialect
from replicarouter.engines.sglang import SglangDialect
from replicarouter.engines.vllm import VllmDialect

DIALECTS: dict[str, Dialect] = {
    "vllm": VllmDialect(),
    "sglang": SglangDialect(),
    "generic": GenericDialect(),
}

PARSER = PageParser(vllm.NAMES | sglang.NAMES)
"""Reads from a page what any of the dialects wants; a dialect then ignores the others' names."""


def detect(samples: Samples) -> Dialect:
    """Return the first dialect that recognises the page; `generic` recognises every page."""
    return next(dialect for dialect in DIALECTS.values() if dialect.recognises(samples))


__all__ = ["DIALECTS", "PARSER", "Dialect", "EngineReading", "Samples", "detect"]
