"""A router of several processes, asked like one that runs on the test's own loop.

`WORKERS=2 python -m pytest tests/journeys` has every journey meet it; a journey about one process's objects
does not apply.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from replicarouter.settings import load_settings
from tests.fakes.certificates import trusting
from tests.fakes.replica import FakeReplica
from tests.fakes.running import Doors, document_of, free_port
from tests.fakes.served import STARTS
from tests.fakes.wire import eventually

WORKERS = int(os.environ.get("WORKERS", "0"))
"""How many processes routers of journeys have; 0: they run on the test's own loop."""


class WorkersRouter(Doors):
    """`replicarouter serve --workers`, by a settings file."""

    def __init__(self, config: Path, document: dict[str, Any], workers: int) -> None:
        super().__init__(document["port"], document["admin"]["port"], document["admin"].get("token"))
        self.settings = load_settings(flags={}, environ={}, config=config).settings.model_dump()
        self.stopped = False
        self._output = config.with_suffix(".log")
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "replicarouter", "serve"),
                    *("--config", str(config), "--workers", str(workers)),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @classmethod
    async def start(
        cls,
        replicas: Iterable[FakeReplica | str | dict[str, Any]],
        folder: Path,
        *,
        workers: int = WORKERS,
        **options: Any,
    ) -> Self:
        """Start on free ports. `options` are settings by their YAML names; intervals are short by default."""
        document = document_of(replicas, **options)
        document["port"] = document["port"] or free_port()
        config = folder / "workers.yaml"
        config.write_text(json.dumps(document))
        router = cls(config, document, workers)
        if cert := document.get("tls", {}).get("cert"):
            router.tls = trusting(Path(cert))

        async def listens() -> bool:
            assert router.process.poll() is None, router.output
            try:
                return (await router.admin("/health")).status == 200 and "clients" in router.output
            except ConnectionRefusedError:
                return False

        try:
            await eventually(listens, "the router listens", deadline=STARTS)
        except AssertionError:
            router.process.kill()
            router.process.wait()
            raise
        return router

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    @property
    def complaints(self) -> list[str]:
        """Errors in its log."""
        return [line for line in self.output.splitlines() if '"level":"error"' in line]

    async def stop(self) -> None:
        """End it at once."""
        if not self.stopped:
            self.stopped = True
            self.process.terminate()
            # Two signals that come at once are one.
            await eventually(
                lambda: '"draining"' in self.output or self.process.poll() is not None, "it drains"
            )
            self.process.terminate()
            try:
                await eventually(lambda: self.process.poll() is not None, "it ends", deadline=STARTS)
            finally:
                self.process.kill()
                self.process.wait()
