"""Draws the pictures of the status page: a real router, simulated engines, real load, real Chromium.

python -m docs.images.make [FOLDER]      # from the top of the checkout; needs Debian's `chromium`
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import aiohttp
from PIL import Image  # comes with matplotlib

from replicarouter.demo.children import Child
from replicarouter.loadgen.users import Users
from replicarouter.loadgen.workload import Workload
from tests.fakes.browser import Chromium, Tab
from tests.fakes.running import free_port

HOST = "127.0.0.1"
HERE = Path(__file__).parent
SETTLES = 45.0
"""Seconds of load before a picture is taken: the sparklines have something to show, the verdict stands."""

FREEZES = 9.0
"""Seconds of them in which some replica is frozen."""

MOST_BYTES = 150_000


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture; `height` 0 is the whole page."""

    file: str
    width: int = 1280
    height: int = 0
    dark: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One state of a fleet; `frozen` replicas stop in mid-work."""

    name: str
    users: int = 256
    replicas: int = 8
    router: Sequence[str] = ()
    engine: Sequence[str] = ()
    frozen: int = 0
    shots: Sequence[Shot]


SCENES = (
    Scene(
        name="healthy",
        users=192,
        shots=(Shot("status-healthy.png"), Shot("status-phone-dark.png", width=390, height=1500, dark=True)),
    ),
    Scene(
        name="limited by the router",
        router=("--connector-limit", "100"),
        shots=(Shot("status-limited.png"),),
    ),
    Scene(
        name="one replica stalled",
        users=192,
        frozen=1,
        shots=(Shot("status-stalled.png"),),
    ),
)


@asynccontextmanager
async def fleet(scene: Scene) -> AsyncIterator[tuple[int, int, list[str]]]:
    """The engines and a router; its two ports and the engines' addresses."""
    engines = Child(
        "engines",
        ("engine", "--port", "0", "--count", str(scene.replicas), "--model", "qwen3-27b", *scene.engine),
    )
    children = [engines]
    try:

        async def addresses() -> list[str] | None:
            lines = [line.split()[0] for line in engines.output().splitlines() if "http://" in line]
            return lines if len(lines) == scene.replicas else None

        urls = await engines.until(addresses)
        port, admin_port = free_port(), free_port()
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            rows = [f"- {{url: '{url}', name: gpu-{number}}}" for number, url in enumerate(urls)]
            config.write("\n".join(["replicas:", *rows, "health: {stall_after: 4}", ""]))
            config.flush()
            router = Child(
                "router",
                (
                    *("serve", "--config", config.name, "--port", str(port), "--admin-port", str(admin_port)),
                    *("--policy", "least-outstanding", "--log-level", "error", *scene.router),
                ),
            )
            children.append(router)
            async with aiohttp.ClientSession() as session:

                async def ready() -> bool | None:
                    try:
                        async with session.get(f"http://{HOST}:{admin_port}/ready") as answer:
                            return answer.status == 200 or None
                    except aiohttp.ClientError:
                        return None

                await router.until(ready)
        yield port, admin_port, urls
    finally:
        for child in reversed(children):
            await child.stop()


async def photograph(scene: Scene, browser: Chromium, folder: Path) -> None:
    """Let users load the fleet of a scene, and take its pictures."""
    async with fleet(scene) as (port, admin_port, urls), browser.tab() as tab:
        workload = Workload(model="qwen3-27b", answer_tokens=(120, 400), prompt_tokens=(40, 400))
        users = Users(HOST, port, count=scene.users, workload=workload, clock=time.perf_counter)
        users.start()
        try:
            await tab.look(1280)
            await tab.open(f"http://{HOST}:{admin_port}/")
            await tab.until_text("#freshness", "Live", deadline=20)
            await asyncio.sleep(SETTLES - FREEZES)
            async with aiohttp.ClientSession() as session:
                for url in urls[2 : 2 + scene.frozen]:
                    await session.post(f"{url}/sim/fault", json={"kind": "frozen"})
            await asyncio.sleep(FREEZES)
            for shot in scene.shots:
                await shoot(tab, folder, shot)
        finally:
            await users.stop()


async def shoot(tab: Tab, folder: Path, shot: Shot) -> None:
    """Take one picture."""
    path = folder / shot.file
    await tab.look(shot.width, 800, dark=shot.dark)
    await asyncio.sleep(1.5)
    # The page has few colours: a palette says the same in a third of the bytes.
    picture = Image.open(BytesIO(await tab.picture(shot.height))).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{path.name} has {size} bytes"
    assert tab.errors == [], tab.errors


async def main(folder: Path, names: Sequence[str]) -> None:
    """Take the pictures of all scenes, or of those that are named."""
    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("chromium is not installed; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        browser = Chromium(path, Path(scratch)).until_up()
        try:
            for scene in SCENES:
                if not names or scene.name in names:
                    await photograph(scene, browser, folder)
        finally:
            browser.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE, sys.argv[2:]))
