"""Headless Chromium, driven by its DevTools protocol: what a person would see of a page, and do to it.

https://chromedevtools.github.io/devtools-protocol/ describes the commands and events used here.
"""

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from replicarouter.tasks import TaskSet
from tests.fakes.wire import eventually

STARTS = 30.0
"""Seconds for the browser to start on a busy machine."""

LOOKS = 0.03
"""Seconds between two looks at a page: each keeps a browser busy, and others may need the processor."""

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--mute-audio", "--force-device-scale-factor=1"),
    *("--remote-debugging-port=0", "about:blank"),
)


class Chromium:
    """One browser process; its tabs share nothing that a page keeps for a tab."""

    def __init__(self, path: str, folder: Path) -> None:
        self._log = (folder / "chromium.log").open("wb")
        self._port_file = folder / "profile" / "DevToolsActivePort"
        self._process = subprocess.Popen(
            [path, f"--user-data-dir={folder / 'profile'}", *FLAGS], stdout=self._log, stderr=self._log
        )

    def until_up(self) -> Self:
        """Wait until it can be driven."""
        end = time.monotonic() + STARTS
        while not self._port_file.exists() or "\n" not in self._port_file.read_text():
            if time.monotonic() > end or self._process.poll() is not None:
                raise AssertionError(f"chromium does not start; see {self._log.name}")
            time.sleep(0.02)
        return self

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port_file.read_text().splitlines()[0]}"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def tab(self) -> "Tab":
        return Tab(self.address)


class Tab:
    """One page, an async context manager. `errors` is what its console complains of, `requests` what it
    asked for."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._tasks = TaskSet()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._sent = 0
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        async with self._session.put(f"{self._address}/json/new?about:blank") as response:
            target = await response.json(content_type=None)
        self._id = target["id"]
        self._socket = await self._session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
        self._tasks.start(self._listen(), "devtools")
        for domain in ("Runtime", "Log", "Network", "Page"):
            await self.command(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._session.get(f"{self._address}/json/close/{self._id}"):
            pass
        await self._socket.close()
        await self._tasks.close()
        await self._session.close()

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command; its result."""
        self._sent += 1
        answer = self._answers[self._sent] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._sent, "method": method, "params": parameters})
        async with asyncio.timeout(STARTS):
            document = await answer
        assert "error" not in document, (method, document)
        return dict(document["result"])

    async def _listen(self) -> None:
        async for message in self._socket:
            document = json.loads(message.data)
            if "id" in document:
                answer = self._answers.pop(document["id"])
                if not answer.done():
                    answer.set_result(document)
            else:
                self._note(document["method"], document["params"])

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(event["exceptionDetails"].get("exception", event)))
        elif method == "Runtime.consoleAPICalled" and event["type"] in {"error", "warning", "assert"}:
            self.errors.append(str(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in {"error", "warning"}:
            self.errors.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    @property
    def origins(self) -> set[str]:
        """Where it asked for anything."""
        return {f"{parts.scheme}://{parts.netloc}" for parts in map(urlsplit, self.requests)}

    async def open(self, url: str) -> None:
        """Go there and wait until it is loaded."""
        await self.command("Page.navigate", url=url)
        there = f"location.href.startsWith({json.dumps(url)})"
        await self.until(f"{there} && document.readyState === 'complete'", f"{url} is loaded")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = await self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    async def text(self, selector: str) -> str:
        """What is written in the first element of this selector, as far as it is shown; "" without one."""
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def until(self, expression: str, what: str, *, deadline: float = 10.0) -> Any:
        """Wait until the expression is true; its value."""
        return await self.comes(lambda: self.evaluate(expression), what, deadline=deadline)

    async def comes(self, look: Callable[[], Awaitable[Any]], what: str, *, deadline: float = 10.0) -> Any:
        """Look until there is something; what it is."""

        async def there() -> Any:
            seen = await look()
            if not seen:
                await asyncio.sleep(LOOKS)
            return seen

        return await eventually(there, what, deadline=deadline)

    async def until_text(self, selector: str, part: str, *, deadline: float = 10.0) -> str:
        """Wait until the element's text contains `part`; the text."""
        seen = ""

        async def there() -> bool:
            nonlocal seen
            seen = await self.text(selector)
            return part in seen

        try:
            await self.comes(there, f"{selector} says {part!r}", deadline=deadline)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; it says {seen!r}; console: {self.errors}") from None
        return seen

    async def click(self, selector: str) -> None:
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Give the page this size, and this colour scheme."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, height: int | None = None) -> bytes:
        """A PNG of the whole page, or of its upper part."""
        size = (await self.command("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        shot = await self.command(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])
