"""The router itself, as the page says it."""

import os
import resource

from tests.telemetry.conftest import Watched


def test_the_router_says_what_it_is(watched: Watched) -> None:
    assert watched.samples("build_info") == {("9.9",): 1}
    assert watched.samples("config_reload_success") == {(): 1}
    assert watched.samples("event_loop_lag_seconds") == {(): 0.25}


def test_a_page_tells_when_it_was_written_to_the_millisecond(watched: Watched) -> None:
    assert watched.samples("time_seconds") == {(): 1_700_000_000.25}


def test_the_process_is_the_routers_own(watched: Watched) -> None:
    (cpu,) = watched.samples("process_cpu_seconds_total").values()
    used = os.times()
    assert 0 < cpu <= used.user + used.system
    (limit,) = watched.samples("process_max_fds").values()
    assert limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    (resident,) = watched.samples("process_resident_memory_bytes").values()
    assert 2**20 < resident < 2**40


def test_open_descriptors_are_counted(watched: Watched) -> None:
    (before,) = watched.samples("process_open_fds").values()
    reading, writing = os.pipe()
    try:
        assert watched.samples("process_open_fds") == {(): before + 2}
    finally:
        os.close(reading)
        os.close(writing)
