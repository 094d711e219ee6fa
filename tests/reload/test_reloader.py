"""Reading the settings again: as a whole or not at all, and what is said of it."""

import asyncio
import logging
from pathlib import Path

import pytest

from replicarouter.reload import reloader as module
from replicarouter.reload.reloader import Reloader
from replicarouter.settings import Settings, SettingsError, load_settings
from replicarouter.tasks import TaskSet
from tests.fakes.wire import eventually

GOOD = "replicas: ['http://a:1']\n"
BETTER = "replicas: ['http://a:1', 'http://b:1']\n"
BROKEN = "replicas: ['http://a:1'\n"


class Router:
    """Something that serves by settings; `refuses` says why it cannot by these."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reloaded = True
        self.refuses: BaseException | None = None
        self.applied = 0

    def apply(self, settings: Settings) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.applied += 1
        self.settings = settings

    @property
    def names(self) -> list[str]:
        return [replica.name for replica in self.settings.replicas]


class Scene:
    """A settings file, what serves by it, and the log."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.file = folder / "router.yaml"
        self.file.write_text(GOOD)
        self.router = Router(self.load())
        self.reloader = Reloader(self.router, self.load, self.file)
        self._log = caplog
        caplog.set_level(logging.INFO)

    def load(self) -> Settings:
        return load_settings(flags={}, environ={}, config=self.file).settings

    async def looks(self, count: int = 2) -> None:
        for _ in range(count):
            await self.reloader.look()

    def said(self) -> list[str]:
        """The events since the last call."""
        events = [record.getMessage() for record in self._log.records if record.name == module.__name__]
        self._log.clear()
        return events


@pytest.fixture
def scene(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(tmp_path, caplog)


async def test_a_good_file_is_applied_when_asked(scene: Scene) -> None:
    scene.file.write_text(BETTER)
    await scene.reloader.reload()
    assert scene.router.names == ["a:1", "b:1"]
    assert scene.said() == ["settings reloaded"]


async def test_a_change_is_seen_when_it_has_settled(scene: Scene) -> None:
    await scene.looks()
    assert scene.said() == []
    scene.file.write_text(BETTER)
    await scene.looks(1)
    assert scene.router.names == ["a:1"]
    await scene.looks(1)
    assert scene.router.names == ["a:1", "b:1"]
    applied = scene.router.applied
    await scene.looks(5)
    assert scene.router.applied == applied
    assert scene.said() == ["settings reloaded"]


async def test_a_file_that_is_being_written_is_waited_for(scene: Scene) -> None:
    """Cut anywhere, this file is still a good one: with fewer replicas."""
    await scene.looks()
    for length in range(len(GOOD) - 2, len(BETTER)):
        scene.file.write_text(BETTER[:length])
        await scene.looks(1)
    assert (scene.router.names, scene.router.reloaded) == (["a:1"], True)
    scene.file.write_text(BETTER)
    await scene.looks()
    assert scene.router.names == ["a:1", "b:1"]


async def test_what_changed_before_the_first_look_is_not_missed(scene: Scene) -> None:
    scene.file.write_text(BETTER)
    await scene.looks()
    assert scene.router.names == ["a:1", "b:1"]
    assert scene.said() == ["settings reloaded"]


BAD = {
    "no YAML": BROKEN,
    "no replica": "replicas: []\n",
    "nothing": "",
    "an unknown policy": GOOD + "policy: best\n",
    "an unknown key": GOOD + "polcy: random\n",
    "a good and a bad part": BETTER + "port: -1\n",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
async def test_a_bad_file_changes_nothing_and_is_told_once(scene: Scene, content: str) -> None:
    await scene.looks()
    scene.file.write_text(content)
    await scene.looks(6)
    await scene.reloader.reload()
    assert (scene.router.names, scene.router.reloaded) == (["a:1"], False)
    assert scene.said() == ["settings not reloaded"]
    scene.file.write_text(GOOD)
    await scene.looks()
    assert scene.router.reloaded
    assert scene.said() == ["settings reloaded"]
    scene.file.write_text(content)
    await scene.looks()
    assert scene.said() == ["settings not reloaded"]


async def test_another_fault_is_told_too(scene: Scene) -> None:
    for content in (BROKEN, BROKEN + "\n", ""):
        scene.file.write_text(content)
        await scene.reloader.reload()
    assert scene.said() == ["settings not reloaded"] * 3


async def test_a_file_that_is_gone_for_a_moment_changes_nothing(scene: Scene) -> None:
    await scene.looks()
    scene.file.rename(scene.file.with_name("aside"))
    await scene.looks()
    assert (scene.router.names, scene.router.reloaded) == (["a:1"], False)
    scene.file.with_name("aside").rename(scene.file)
    await scene.looks()
    assert scene.router.reloaded


async def test_what_cannot_be_applied_counts_as_bad(scene: Scene) -> None:
    scene.router.refuses = SettingsError("tls.cert: no")
    await scene.reloader.reload()
    assert not scene.router.reloaded
    assert scene.said() == ["settings not reloaded"]
    scene.router.refuses = None
    await scene.reloader.reload()
    assert scene.router.reloaded


async def test_a_fault_of_ours_is_no_success(scene: Scene) -> None:
    scene.router.refuses = RuntimeError("ours")
    with pytest.raises(RuntimeError):
        await scene.reloader.reload()
    assert not scene.router.reloaded
    scene.router.refuses = None
    await scene.reloader.reload()
    assert scene.router.reloaded


async def test_what_needs_a_restart_is_named_in_one_warning(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.file.write_text(BETTER + "port: 9999\nworkers: 1\nconnector: {limit: 5}\n")
    await scene.reloader.reload()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert (warning.getMessage(), warning.__dict__["settings"]) == (
        "settings need a restart",
        "port, connector.limit",
    )
    assert scene.router.names == ["a:1", "b:1"]
    assert (scene.router.settings.port, scene.router.settings.connector.limit) == (8080, 0)


async def test_the_files_that_settings_name_are_watched_too(scene: Scene, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")
    scene.file.write_text(GOOD + f"api_keys_file: {keys}\n")
    await scene.looks(6)
    scene.said()
    applied = scene.router.applied
    keys.write_text("sk-two\n")
    await scene.looks(6)
    assert scene.router.applied == applied + 1
    assert scene.said() == ["settings reloaded"]
    keys.write_text("# no key\n")
    await scene.looks(6)
    assert not scene.router.reloaded
    assert scene.said() == ["settings not reloaded"]


async def test_no_secret_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.file.write_text(GOOD + "api_keys: ['sk canary']\nadmin: {token: 'ca nary'}\n")
    await scene.reloader.reload()
    scene.file.write_text(GOOD + "api_keys: ['sk-canary']\n")
    await scene.reloader.reload()
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert "nary" not in str(record.__dict__)


async def test_a_change_right_behind_the_one_before_is_not_missed(scene: Scene) -> None:
    """The next one may be written as soon as anybody can see that this one is in effect."""
    await scene.looks()
    apply = scene.router.apply

    def apply_and_write_again(settings: Settings) -> None:
        apply(settings)
        scene.file.write_text(GOOD)

    scene.router.apply = apply_and_write_again  # type: ignore[method-assign]
    scene.file.write_text(BETTER)
    await scene.looks()
    assert scene.router.names == ["a:1", "b:1"]
    await scene.looks()
    assert scene.router.names == ["a:1"]


async def test_two_reloads_at_once_are_one_after_the_other(scene: Scene) -> None:
    scene.file.write_text(BETTER)
    await asyncio.gather(*(scene.reloader.reload() for _ in range(3)), scene.looks())
    assert scene.router.names == ["a:1", "b:1"]
    assert scene.router.applied == 3


async def test_watching_goes_on_for_ever(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_INTERVAL", 0.01)
    tasks = TaskSet()
    tasks.start(scene.reloader.watch(), "watch")
    for content, count in ((BETTER, 2), (BROKEN, 2), (GOOD, 1)):
        scene.file.write_text(content)
        await eventually(lambda count=count: len(scene.router.names) == count, "it is applied")  # type: ignore[misc]
    await tasks.close()
