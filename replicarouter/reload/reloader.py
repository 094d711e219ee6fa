"""Reads the settings again when asked to, or when their files change, and has the good ones applied."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from replicarouter.errors import SettingsError
from replicarouter.reload.files import Fingerprint, files_of, fingerprint
from replicarouter.reload.fixed import changed_names, keep_fixed
from replicarouter.settings import Settings
from replicarouter.tasks import every

log = logging.getLogger(__name__)

WATCH_INTERVAL = 0.5
"""Seconds between two looks. Files count as changed when two looks in a row see the same new content, so
that half a file is not taken for a whole one, and a change is in effect within a second or little more."""


class Serving(Protocol):
    """Who serves by the settings. `reloaded` is whether the last attempt to read them again worked."""

    settings: Settings
    reloaded: bool

    def apply(self, settings: Settings) -> None:
        """Go on by other settings; raises SettingsError before anything has changed."""


class Reloader:
    """Takes over new settings as a whole, or keeps the old ones and says why, once for each content.

    `load` reads all sources as at the start, and raises SettingsError.
    """

    def __init__(self, serving: Serving, load: Callable[[], Settings], config: Path | None) -> None:
        self._serving = serving
        self._load = load
        self._config = config
        self._turn = asyncio.Lock()
        self._tried: Fingerprint | None = None
        self._pending: Fingerprint | None = None
        self._complaint: tuple[Fingerprint, str] | None = None

    async def watch(self) -> None:
        """Reload whenever the files have changed, for ever."""
        await every(WATCH_INTERVAL, self.look, "watch settings")

    async def look(self) -> None:
        """One look at the files; the first one also finds what changed since they were read."""
        async with self._turn:
            seen = await asyncio.to_thread(fingerprint, self._files)
            if seen == self._tried:
                self._pending = None
            elif seen == self._pending:
                await self._try(seen, asked=False)
            else:
                self._pending = seen

    async def reload(self) -> None:
        """Read the settings again now."""
        async with self._turn:
            seen = await asyncio.to_thread(fingerprint, self._files)
            await self._try(seen, asked=True)

    @property
    def _files(self) -> tuple[Path, ...]:
        return files_of(self._serving.settings, self._config)

    async def _try(self, seen: Fingerprint, *, asked: bool) -> None:
        serving = self._serving
        told = asked or self._tried is not None or not serving.reloaded
        self._tried, self._pending = seen, None
        before = serving.settings
        try:
            wanted = await asyncio.to_thread(self._load)
            settings, kept = keep_fixed(before, wanted)
            serving.apply(settings)
        except SettingsError as error:
            serving.reloaded = False
            self._complain(seen, str(error))
            return
        except BaseException:
            serving.reloaded = False
            raise
        serving.reloaded = True
        self._complaint = None
        changed = changed_names(before, settings)
        if kept:
            log.warning("settings need a restart", extra={"settings": ", ".join(kept)})
        if told or changed:
            names = ", ".join(changed) or "nothing but contents of files"
            log.info("settings reloaded", extra={"changed": names})

    def _complain(self, seen: Fingerprint, why: str) -> None:
        """The same fault of the same content is told once, however often somebody asks."""
        if self._complaint != (seen, why):
            self._complaint = seen, why
            log.error("settings not reloaded", extra={"why": why})
