"""The worked diagnoses of deploy/diagnoses again: pages of metrics, and what `diagnose` says of them.

    python -m benchmarks.record_diagnoses                    # record every case (five minutes)
    python -m benchmarks.record_diagnoses kv-pressure        # record this one
    python -m benchmarks.record_diagnoses --outputs-only     # only write anew what `diagnose` says of them

Simulated engines and the router are processes of their own; the users are in this one, over real sockets. A
recording counts when `diagnose` finds in it what the case is about, else it is made again, `TRIES` times in
all: on a machine that is busy otherwise the router itself may be what limits.
"""

import argparse
import asyncio
import io
import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, chdir, redirect_stdout

from benchmarks.diagnoses import CASES, MODEL, PAGE, ROOT, SECONDS, Case, Crowd
from benchmarks.proxies import free_port
from replicarouter.cli import main as replicarouter
from replicarouter.demo.children import Child
from replicarouter.loadgen.users import Users

HOST = "127.0.0.1"
READY = re.compile(r'^replicarouter_replica_state\{.*state="ready".*\} 1', re.MULTILINE)

SPEED = 0.5
"""Of the engines, in relation to the GPU they imitate: hundreds of streams shall leave the router a core."""

SETTLED = 12.0
"""Seconds of load before the first page: answers have ended, shares of newcomers have grown."""

TRIES = 3
ANSWERS = 5.0
"""Seconds for the answer to a request of this script itself."""

FAILED = 1
"""The exit status of `diagnose` where pages are missing."""


def main() -> int:
    """Record what is asked for, rewrite the page; 1 if a case does not show what it is about."""
    arguments = parse()
    for case in [] if arguments.outputs_only else chosen(arguments.cases):
        asyncio.run(recorded(case))
    PAGE.write_text(with_outputs(PAGE.read_text()))
    wrong = [case.name for case in CASES if not found(case)]
    if wrong:
        print("not what the case is about:", ", ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    names = [case.name for case in CASES]
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(names)} (default: all)")
    parser.add_argument("--outputs-only", action="store_true", help="record nothing")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(names):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return arguments


def chosen(names: Sequence[str]) -> Sequence[Case]:
    """The cases of these names, or all."""
    return [case for case in CASES if case.name in names or not names]


# Outputs


def said(words: Sequence[str]) -> tuple[str, int]:
    """What the program prints in the folder of the repository, and its exit status."""
    output = io.StringIO()
    with chdir(ROOT), redirect_stdout(output):
        status = replicarouter(words)
    return output.getvalue(), status


def found(case: Case) -> bool:
    """Whether the recorded pages show what the case is about."""
    output, status = said((*case.command, "--json"))
    if status == FAILED:
        return False
    codes = [verdict["code"] for verdict in json.loads(output)["verdicts"]]
    return (codes[:1], status) == ([case.code] if case.code else [], case.status)


def session(case: Case) -> str:
    """The command and what it says, as in a terminal."""
    output, status = said(case.command)
    return f"$ replicarouter {' '.join(case.command)}\n{output}$ echo $?\n{status}\n"


def block(case: Case) -> re.Pattern[str]:
    """Where the page shows that."""
    page = re.escape(case.pages[0].name)
    command = rf"\$ replicarouter diagnose [^\n]*/{page} "
    return re.compile(rf"(?<=^```console\n){command}.*?(?=^```$)", re.MULTILINE | re.DOTALL)


def with_outputs(text: str) -> str:
    """The page with what the program says now; a case without a block is passed over."""
    for case in CASES:
        if found_at := block(case).search(text):
            text = text[: found_at.start()] + session(case) + text[found_at.end() :]
    return text


# Recording


async def recorded(case: Case) -> None:
    """Record until the pages show what the case is about."""
    for number in range(1, TRIES + 1):
        for file, text in zip(case.pages, await record(case), strict=True):
            file.write_text(text)
        if found(case):
            print(f"{case.name}: recorded", flush=True)
            return
        print(f"{case.name}: try {number} shows something else\n{said(case.command)[0]}", flush=True)


async def record(case: Case) -> tuple[str, str]:
    """Two pages of a router under this load."""
    async with fleet(case) as urls, router(case, urls) as port:
        if case.rehearsed:
            async with load(case, urls, port):
                await asyncio.sleep(SETTLED + SECONDS)
        for number, fault in case.faults:
            await post(f"{urls[number]}/sim/fault", fault)
        async with load(case, urls, port):
            await asyncio.sleep(SETTLED)
            for number, fault in case.late:
                await post(f"{urls[number]}/sim/fault", fault)
            await asyncio.sleep(case.pause)
            before, at = await page(port), time.monotonic()
            await asyncio.sleep(at + SECONDS - time.monotonic())
            return before, await page(port)


@asynccontextmanager
async def fleet(case: Case) -> AsyncIterator[list[str]]:
    """The engines of a case, by their URLs."""
    flags = ("--port", "0", "--count", str(case.replicas), "--model", MODEL, "--speed", str(SPEED))
    async with child("engines", "engine", *flags, *case.engine) as engines:

        async def urls() -> list[str] | None:
            lines = [line.strip() for line in engines.output().splitlines()]
            found = [line for line in lines if line.startswith("http://")]
            return found if len(found) == case.replicas else None

        yield await engines.until(urls)


@asynccontextmanager
async def router(case: Case, urls: Sequence[str]) -> AsyncIterator[int]:
    """A router in front of them with the settings of the case; its port."""
    port = free_port()
    replicas = [{"url": url, "name": f"gpu{number}"} for number, url in enumerate(urls)]
    settings = {"port": port, "admin": {"port": 0}, "replicas": replicas, **case.settings}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(settings, file)
        file.flush()
        async with child("router", "serve", "--config", file.name, "--log-level", "error") as serving:

            async def ready() -> bool | None:
                try:
                    text = await page(port)
                except OSError:
                    return None
                return True if len(READY.findall(text)) == case.replicas else None

            await serving.until(ready)
            yield port


@asynccontextmanager
async def child(name: str, *arguments: str) -> AsyncIterator[Child]:
    """A process of this program, gone afterwards."""
    started = Child(name, arguments)
    try:
        yield started
    finally:
        await started.stop()


@asynccontextmanager
async def load(case: Case, urls: Sequence[str], port: int) -> AsyncIterator[None]:
    """The users of a case, at work."""
    async with AsyncExitStack() as stack:
        for crowd in case.crowds:
            users = crowd_of(crowd, urls, port)
            stack.push_async_callback(users.stop)
            users.start()
        yield


def crowd_of(crowd: Crowd, urls: Sequence[str], port: int) -> Users:
    """These users, in front of the router or of one engine."""
    to = port if crowd.past is None else int(urls[crowd.past].rpartition(":")[2])
    return Users(HOST, to, count=crowd.count, workload=crowd.chats, clock=time.monotonic)


async def page(port: int) -> str:
    """The router's page of metrics without what `diagnose` does not read: comments, buckets of histograms."""
    text = await ask(f"http://{HOST}:{port}/metrics")
    return "".join(line for line in text.splitlines(True) if line[0] != "#" and "_bucket{" not in line)


async def post(url: str, document: object) -> None:
    """Post this as JSON."""
    await ask(url, json.dumps(document).encode())


async def ask(url: str, body: bytes | None = None) -> str:
    """The answer's text."""

    def now() -> str:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWERS) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(now)


if __name__ == "__main__":
    raise SystemExit(main())
