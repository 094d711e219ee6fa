"""The status page in a real browser, in front of a real router: what a person sees, and what they can do."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from replicarouter.simulator import EngineOptions, start_engines
from tests.fakes.browser import Chromium, Tab
from tests.fakes.client import HOST, Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.programs import program
from tests.fakes.replica import OK, SSE_HEAD, FakeReplica, event, held, reply
from tests.fakes.running import STAGES, RunningRouter, StartRouter, free_port
from tests.fakes.states import row
from tests.fakes.wire import eventually

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
STEPS = "vllm:iteration_tokens_total_count"
WAITS = 20.0
"""Seconds for what takes a few turns of the page's feed."""

CONTRAST = """
(() => {
  const numbers = (colour) => (colour.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest("noscript, script, .skip")) continue;
    const [a, b] = [light(numbers(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.push(`${walk.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return pale;
})()
"""
"""Texts whose contrast with what is behind them is below 4.5, by WCAG 2.2, success criterion 1.4.3 and its
definition of relative luminance: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""


OUT_OF_PLACE = """
(() => {
  const rect = (node) => node.getBoundingClientRect();
  const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const seen = (nodes) => [...nodes].filter((node) => node.checkVisibility());
  const shown = (selector) => seen(document.querySelectorAll(selector));
  const wrong = [];
  for (const stage of shown(".stage")) {
    const parts = seen(stage.children);
    parts.forEach((part, index) => {
      if (!inside(rect(part), rect(stage))) wrong.push(`out of ${stage.id}: ${part.innerText}`);
      for (const other of parts.slice(index + 1)) {
        if (!apart(rect(part), rect(other))) wrong.push(`${part.innerText} on ${other.innerText}`);
      }
    });
    const next = stage.nextElementSibling;
    if (next) {
      const gap = Math.max(rect(next).left - rect(stage).right, rect(next).top - rect(stage).bottom);
      if (gap < 16) wrong.push(`no room for an arrow after ${stage.id}: ${gap}`);
    }
  }
  for (const lane of shown(".lane[data-state=ready]")) {
    const lines = rect(lane.querySelector(".who")).height / parseFloat(getComputedStyle(lane).lineHeight);
    if (innerWidth > 1080 && lines > 2.5) wrong.push(`${lane.innerText} has ${lines} lines`);
    if (lane.scrollWidth > lane.clientWidth) wrong.push(`out of its lane: ${lane.innerText}`);
  }
  return wrong;
})()
"""
"""Parts of stages that lie on one another or stick out, arrows without room, and lanes that are too high."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(program("chromium", "chromium"), tmp_path_factory.mktemp("browser"))
    try:
        yield chromium.until_up()
    finally:
        chromium.stop()


class Page(Tab):
    """A tab that shows the status page; what is expected of its console is in `forgiven`."""

    forgiven: tuple[str, ...] = ()

    async def show(self, router: RunningRouter) -> None:
        await self.open(f"http://{HOST}:{router.admin_port}/")

    async def live(self, router: RunningRouter) -> None:
        """Open the page and wait until it shows the router."""
        await self.show(router)
        await self.until("document.body?.dataset.feed === 'live'", "the page is live", deadline=WAITS)

    async def stages(self) -> dict[str, int]:
        counts = await self.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.stage')].map((stage) =>"
            " [stage.id.slice(6), stage.querySelector('.count').textContent]))"
        )
        return {stage: int(counts[stage].replace(",", "")) for stage in STAGES}

    async def shows(self, **stages: int) -> None:
        """Wait until exactly these stages are not empty."""
        wanted = {stage: stages.get(stage, 0) for stage in STAGES}
        await self.comes(lambda: self._shows(wanted), f"the page shows {stages}", deadline=WAITS)

    async def _shows(self, wanted: dict[str, int]) -> bool:
        return await self.stages() == wanted

    async def lane(self, name: str) -> str:
        """What is written in the lane of this replica."""
        return str(
            await self.evaluate(
                "[...document.querySelectorAll('.lane')].find((lane) =>"
                f" lane.querySelector('h3').textContent === {json.dumps(name)})?.innerText ?? ''"
            )
        )

    async def lane_says(self, name: str, *parts: str) -> None:
        async def there() -> bool:
            text = await self.lane(name)
            return all(part in text for part in parts)

        await self.comes(there, f"the lane of {name} says {parts}", deadline=WAITS)

    async def press(self, name: str, order: str) -> None:
        """Press the button of a replica; a question comes."""
        await self.until(
            f"!document.querySelector('button[aria-label=\"{order} {name}\"]').disabled", "it can be pressed"
        )
        await self.click(f'button[aria-label="{order} {name}"]')
        await self.until("document.getElementById('confirm').open", "a question is asked")


@pytest_asyncio.fixture
async def page(browser: Chromium) -> AsyncIterator[Page]:
    """Afterwards its console must be empty, and it must have talked to one origin alone."""
    async with Page(browser.address) as tab:
        yield tab
        complaints = [line for line in tab.errors if not any(part in line for part in tab.forgiven)]
        assert complaints == []
        assert len(tab.origins - {"about://"}) <= 1, tab.requests


def streams(gate: asyncio.Event, name: str, **settings: Any) -> FakeReplica:
    """A replica whose answers go on until the gate opens."""
    return FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK), name=name, **settings)


async def test_counts_on_the_page_are_the_ledgers(start_router: StartRouter, page: Page) -> None:
    gate = asyncio.Event()
    streaming = streams(gate, "streams", models=["streams"])
    waiting = FakeReplica(held(b"", gate, OK), name="waits", models=["waits"])
    streaming.probes.gauges = {RUNNING: 2, WAITING: 7}
    router = await start_router(streaming, waiting, connector={"limit_per_replica": 2})
    await page.live(router)
    await page.shows()
    for _ in range(2):
        await router.begin(chat(model="streams"))
    for _ in range(3):
        await router.begin(chat(model="waits"))
    await router.begin(chat(model="waits")[:-10])
    ledger = await router.stage(streaming=2, sent=2, connecting=1, receiving=1)
    await page.shows(**ledger.stages)
    assert "6 requests in flight = 2 in the router + 4 in the engines" in await page.text("#equation")
    await page.lane_says("streams", "2 here: 2 streaming", "engine: 2 running · 7 waiting")
    await page.lane_says("waits", "3 here: 1 connecting · 2 sent", "engine: 0 running · 0 waiting")
    assert await page.text("#replicas-states") == "2 ready"
    gate.set()
    await page.shows(receiving=1)


async def test_connector_limit_is_named_with_its_setting(start_router: StartRouter, page: Page) -> None:
    gate = asyncio.Event()
    replicas = [streams(gate, name) for name in ("gpu-0", "gpu-1")]
    for replica in replicas:
        replica.probes.gauges = {RUNNING: 2}
    router = await start_router(*replicas, connector={"limit": 4})
    for _ in range(14):
        await router.begin(chat())
    await router.stage(streaming=4, connecting=10)
    await page.live(router)
    await page.until_text("#headline", "Limited by the router", deadline=WAITS)
    await page.until_text("#cure", "connector.limit", deadline=WAITS)
    assert (await page.text("#cure")).startswith("Change: ")
    headline = await page.text("#headline")
    assert "connector limit" in headline
    assert "10" in await page.text("#evidence")
    assert await page.text("#stage-connecting .flag") == "held back here"
    assert await page.text("#stage-queued .flag") == ""
    await page.until("document.title.startsWith('✕')", "the title says so too")
    assert "4 of 4" in await page.text("#connector")
    for width in (360, 390, 768, 1280):
        await page.look(width)
        assert await page.evaluate(OUT_OF_PLACE) == [], width
    gate.set()
    limited = "document.getElementById('headline').textContent.startsWith('Limited by the router')"
    await page.until(f"!{limited}", "it is limited no more", deadline=WAITS)
    assert await page.text("#stage-connecting .flag") == ""


async def test_a_healthy_fleet_is_called_so(start_router: StartRouter, page: Page) -> None:
    engines = await start_engines(EngineOptions(speed=0.25), 2)
    try:
        router = await start_router(*(engine.url for engine in engines), ready=2)
        await page.live(router)
        await page.until_text("#headline", "Nothing in the router holds requests back")
        assert "No request is in flight" in await page.text("#evidence")
        for _ in range(6):
            await router.begin(chat(model="sim", max_tokens=20_000, ignore_eos=True))
        await page.shows(streaming=6)
        await page.until_text("#evidence", "6 requests run on 2 replicas", deadline=WAITS)
        assert await page.text("#headline") == "Nothing in the router holds requests back"
        assert await page.evaluate("document.querySelectorAll('.flag:not([hidden])').length") == 0
        assert (await page.evaluate("document.title")).startswith("✓")
        await page.until("!!document.querySelector('.spark path').getAttribute('d')", "a line is drawn")
        await router.leave()
        await router.settled()
    finally:
        for engine in engines:
            await engine.stop()


async def test_a_stalled_replica_is_named(start_router: StartRouter, page: Page) -> None:
    gate = asyncio.Event()
    name = "gpu-node-3.example:8002"
    well, stuck = streams(gate, "gpu-node-1.a-rack-with-a-long-name.example:8001"), streams(gate, name)
    stuck.probes.gauges = {RUNNING: 2, STEPS: 41}
    well.probes.gauges = {RUNNING: 2}
    router = await start_router(well, stuck, health={"stall_after": 1.5})
    for _ in range(4):
        await router.begin(chat())
    await eventually(lambda: row_is(router, stuck, stalled=True), "the router finds it stalled")
    await page.live(router)
    await page.lane_says(name, "stalled", "2 here: 2 streaming")
    await page.until_text("#headline", name, deadline=WAITS)
    assert (await page.text("#headline")).startswith("Not the router: ")
    assert await page.text("#stage-streaming .flag") == f"2 stuck at {name}"
    assert (await page.text("#cure")).startswith("Do: ")
    assert f"drain {name}" in await page.text("#cure")
    for width in (320, 360, 390, 768, 1100, 1280):
        await page.look(width)
        assert await page.evaluate(OUT_OF_PLACE) == [], width
    await page.click("#only-problems")
    assert await page.evaluate(
        "[...document.querySelectorAll('.lane:not([hidden]) h3')].map((h) => h.textContent)"
    ) == [name]


async def row_is(router: RunningRouter, replica: FakeReplica, **wanted: Any) -> bool:
    found = await row(router, replica)
    return {key: found[key] for key in wanted} == wanted


async def test_an_operator_drains_and_undrains(start_router: StartRouter, page: Page) -> None:
    gate = asyncio.Event()
    replica, other = streams(gate, "gpu-0"), FakeReplica(name="gpu-1")
    router = await start_router(replica, other)
    await page.live(router)
    await page.press("gpu-0", "Drain")
    await page.click("#confirm-no")
    assert await row_is(router, replica, duty="active")

    await page.press("gpu-0", "Drain")
    assert "It gets no new requests" in await page.text("#confirm")
    await page.click("#confirm-yes")
    await page.until_text("#outcome", "gpu-0 is drained")
    assert await row_is(router, replica, duty="draining")
    await page.lane_says("gpu-0", "draining", "Undrain")
    assert "1 ready, 1 draining" in await page.text("#replicas-states")
    await page.until_text("#others", "Do: replicarouter replicas undrain gpu-0 gives", deadline=WAITS)

    await page.press("gpu-0", "Undrain")
    await page.click("#confirm-yes")
    await page.lane_says("gpu-0", "ready", "Drain")
    assert await row_is(router, replica, duty="active")


async def test_the_token_is_asked_for_and_goes_with_orders(start_router: StartRouter, page: Page) -> None:
    page.forgiven = ("401",)
    replica = FakeReplica(name="gpu-0")
    router = await start_router(replica, admin={"token": "open-sesame"})
    await page.show(router)
    await page.until("!document.getElementById('token').hidden", "the token is asked for")
    assert await page.text("#freshness") == "Locked"
    assert not await page.evaluate("document.getElementById('main').checkVisibility()")
    await enter(page, "wrong")
    await page.until_text("#token-text", "does not accept this token")
    await enter(page, "open-sesame")
    await page.until("document.body?.dataset.feed === 'live'", "it opens")
    assert not await page.evaluate("document.getElementById('token').checkVisibility()")
    assert all("sesame" not in url for url in page.requests)
    await page.press("gpu-0", "Drain")
    await page.click("#confirm-yes")
    await page.until_text("#outcome", "gpu-0 is drained")
    assert await row_is(router, replica, duty="draining")
    # It is kept for this tab.
    await page.live(router)


async def enter(page: Page, token: str) -> None:
    await page.evaluate(f"document.getElementById('token-field').value = {json.dumps(token)}")
    await page.click("#token button")


async def test_a_router_that_ends_and_comes_back(start_router: StartRouter, page: Page) -> None:
    page.forgiven = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
    replica, port = FakeReplica(name="gpu-0"), free_port()
    router = await start_router(replica, admin={"port": port})
    await page.live(router)
    await router.stop()
    said = await page.until_text("#freshness", "No data since", deadline=WAITS)
    assert "the router does not answer" in said
    assert await page.evaluate("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    button = "document.querySelector('#lanes button')"
    assert await page.evaluate(f"[{button}.disabled, {button}.title]") == [
        True,
        "Not possible now: the router does not answer",
    ]
    await start_router("http://127.0.0.1:9", ready=0, admin={"port": port})
    await page.until("document.body?.dataset.feed === 'live'", "it is live again", deadline=WAITS)
    await page.lane_says("127.0.0.1:9", "loading")
    assert await page.lane("gpu-0") == ""
    assert await page.text("#state") == "not ready"


MARKUP = "<img src=x onerror=document.title='pwned'>"


async def test_nothing_that_others_write_becomes_markup(start_router: StartRouter, page: Page) -> None:
    replica = FakeReplica(
        reply(b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\n{}"), name="gpu-0", labels={"at": MARKUP}
    )
    replica.probes.models = [MARKUP]
    router = await start_router(replica)
    await router.ask(chat(model=MARKUP, headers={"X-Request-Id": MARKUP}))
    await page.live(router)
    await page.lane_says("gpu-0", f"at={MARKUP}")
    await page.until_text("#errors-table", MARKUP)
    assert await page.evaluate("document.querySelectorAll('img').length") == 0
    assert "pwned" not in await page.evaluate("document.title")


async def test_recent_errors_are_told_with_their_ids(start_router: StartRouter, page: Page) -> None:
    replica = FakeReplica(reply(b"HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\n{}"), name="gpu-0")
    router = await start_router(replica)
    await page.live(router)
    assert "No request has failed" in await page.text("#errors")
    await router.ask(chat(headers={"X-Request-Id": "req-77"}))
    text = await page.until_text("#errors-table", "req-77")
    assert "upstream_error@streaming (400)" in text
    assert "gpu-0" in text
    assert "/v1/chat/completions" in text
    listed = (await router.admin("/admin/errors")).json()["errors"]
    assert [error["request_id"] for error in listed] == ["req-77"]


async def test_clients_that_left_are_one_line_and_hide_no_error(
    start_router: StartRouter, page: Page
) -> None:
    gate = asyncio.Event()
    bad = FakeReplica(reply(b"HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\n{}"), name="bad", models=["bad"])
    router = await start_router(streams(gate, "gpu-0", models=["good"]), bad)
    await router.ask(chat(model="bad", headers={"X-Request-Id": "req-77"}))
    await page.live(router)
    assert await page.text("#departed") == ""
    for _ in range(30):
        await router.begin(chat(model="good"))
    await router.stage(streaming=30)
    await router.leave()
    said = await page.until_text("#departed", "30 clients left since the router started, the last one ")
    assert said.endswith("\u00a0s ago, at stage streaming, from gpu-0.")
    rows = "[...document.querySelectorAll('#errors-table tbody tr code')].map((code) => code.innerText)"
    assert await page.evaluate(rows) == ["req-77"]
    document = (await router.admin("/admin/errors")).json()
    assert [error["request_id"] for error in document["errors"]] == ["req-77"]
    assert len(document["departures"]) == 30


async def test_a_page_that_is_closed_costs_nothing_any_more(
    start_router: StartRouter, browser: Chromium
) -> None:
    router = await start_router(FakeReplica())
    async with Page(browser.address) as tab:
        await tab.live(router)
        assert drawing()
    await eventually(lambda: not drawing(), "no document is drawn any more", deadline=WAITS)
    assert (await router.admin("/admin/ledger")).status == 200


def drawing() -> bool:
    return any(task.get_name() == "status page" for task in asyncio.all_tasks())


@pytest.mark.parametrize("count", [1, 64])
async def test_every_width_and_colour_scheme_is_readable(
    start_router: StartRouter, page: Page, count: int
) -> None:
    replicas = [
        FakeReplica(name=f"node-{number // 8}.rack-a.example:80{number:02}") for number in range(count)
    ]
    slow = {"interval": 2.0}
    router = await start_router(*replicas, health=slow, scrape=slow)
    await router.ask(request("POST", "/v1/chat/completions", b"{}"))
    await router.ask(chat(model="nobody-serves-this", headers={"X-Request-Id": "r" * 120}))
    await page.live(router)
    for width in (320, 360, 768, 1280) if count == 1 else (360, 1280):
        for dark in (False, True):
            await page.look(width, dark=dark)
            wide = await page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1] == width
            assert await page.evaluate(CONTRAST) == []
            assert await page.evaluate(OUT_OF_PLACE) == [], width
    assert await page.evaluate("document.querySelectorAll('.lane').length") == count
    assert await page.text("#replicas-states") == f"{count} ready"


async def test_a_router_that_drains_says_so(start_router: StartRouter, page: Page) -> None:
    gate = asyncio.Event()
    router = await start_router(streams(gate, "gpu-0"))
    await router.begin(chat())
    await router.stage(streaming=1)
    await page.live(router)
    assert await page.text("#state") == "ready"
    drained = asyncio.ensure_future(router._router.drain(delay=0, limit=WAITS))
    await page.until_text("#state", "draining")
    gate.set()
    assert await drained


async def test_a_router_that_stops_ends_its_feed(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    viewer = await Client.connect(router.admin_port)
    await viewer.send(request("GET", "/admin/live"))
    await eventually(lambda: b"data: " in viewer.wire.unread, "a document comes")
    await router.stop()
    await eventually(lambda: viewer.wire.ending, "the router closes the connection")
    assert bytes(viewer.wire.unread).endswith(LAST_CHUNK), "it was ended, not cut"
    await viewer.closed()
