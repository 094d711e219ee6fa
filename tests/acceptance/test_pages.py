"""Pages of engines and of the router."""

from pathlib import Path

import pytest

from replicarouter.acceptance.errors import Refused, Unreadable
from replicarouter.acceptance.pages import RouterPage, engine_page
from replicarouter.acceptance.reply import Reply

DATA = Path(__file__).parents[1] / "engines" / "data"


def page(body: bytes, status: int = 200) -> Reply:
    return Reply("one", status, {}, body)


def test_a_page_of_vllm_tells_what_runs() -> None:
    recorded = next(iter(sorted(DATA.glob("vllm-*.txt")))).read_bytes()
    read = engine_page(page(recorded))
    assert read.dialect == "vllm"
    assert read.running is not None


def test_a_page_of_llama_cpp_tells_what_runs() -> None:
    body = b"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2\n"
    assert engine_page(page(body)).running == 2
    assert engine_page(page(b"llamacpp:requests_processing x\n")).running is None


def test_the_routers_page_is_read_by_names_without_the_prefix() -> None:
    body = b'# TYPE replicarouter_a gauge\nreplicarouter_a{x="1"} 3\nreplicarouter_a{x="2"} 4\n'
    read = RouterPage(page(body))
    assert read.has("a")
    assert not read.has("b")
    assert read.series("a") == [({"x": "1"}, 3.0), ({"x": "2"}, 4.0)]
    assert (read.value("a"), read.value("b")) == (3.0, None)


def test_what_is_no_page_is_told() -> None:
    with pytest.raises(Unreadable):
        RouterPage(page(b"<html>\n<p>hello world</p>"))
    with pytest.raises(Refused):
        RouterPage(page(b"", 404))
    with pytest.raises(Refused):
        engine_page(page(b"", 404))
