"""The program as a whole: commands, help, exit statuses."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from replicarouter import __version__
from replicarouter.cli import COMMANDS, Command, CommandFailed, main
from replicarouter.settings import SettingsError


def start(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("REPLICAROUTER_")}
    return subprocess.run(
        [sys.executable, "-m", "replicarouter", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environ,
    )


def test_version_is_told() -> None:
    done = start("--version")
    assert (done.returncode, done.stdout) == (0, f"replicarouter {__version__}\n")


def test_help_lists_every_command() -> None:
    done = start("--help")
    assert done.returncode == 0
    for name, command in COMMANDS.items():
        assert name in done.stdout
        assert command.help in done.stdout


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from replicarouter.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(sorted({'pydantic', 'aiohttp', 'yaml'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_what_the_table_says(name: str) -> None:
    module = importlib.import_module(COMMANDS[name].module)
    told = (module.NAME, module.HELP)
    assert told == (name, COMMANDS[name].help)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = start(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: replicarouter {name}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "replicarouter: the following arguments are required: COMMAND"),
        (["serv"], "invalid choice: 'serv'"),
        (["--nonsense"], "replicarouter: "),
        (["config"], "replicarouter config: the following arguments are required: ACTION"),
        (["config", "show", "--nonsense"], "replicarouter config show: unknown arguments: --nonsense"),
        (["config", "show", "more"], "replicarouter config show: unknown arguments: more"),
        (["config", "show", "--repl", "x"], "unknown arguments: --repl x"),
        (["config", "show", "--port"], "replicarouter config show: argument --port: expected one"),
        (["config", "check"], "required: FILE"),
        (["config", "show", "--port", "x"], "port: 'x' (flag --port) is refused"),
    ],
)
def test_bad_usage_gives_one_message_and_status_2(words: list[str], told: str) -> None:
    done = start(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("replicarouter: ") <= 1


IMPORTING = """
import os, signal, sys
from replicarouter.cli import main

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "replicarouter.cli.{command}":
            os.kill(os.getpid(), signal.{number})
            print("went on", flush=True)
            sys.exit(3)

# As a terminal starts it, whatever started these tests (nohup ignores SIGHUP for all below it).
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.meta_path.insert(0, Interrupting())
main(["{command}"])
"""


@pytest.mark.parametrize(
    ("command", "number", "status", "output"),
    [
        ("serve", "SIGTERM", 0, ""),
        ("serve", "SIGHUP", 3, "went on\n"),
        ("config", "SIGTERM", -15, ""),
        ("config", "SIGHUP", -1, ""),
    ],
)
def test_what_serves_may_be_stopped_before_it_has_begun(
    command: str, number: str, status: int, output: str
) -> None:
    code = IMPORTING.format(command=command, number=number)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (status, output)


def test_handlers_of_signals_are_left_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(SystemExit):
        main(["serve", "--nonsense"])
    assert "--nonsense" in capsys.readouterr().err
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | int], None]:
    """Give the program a command called `try` that ends as asked."""

    def add(ending: BaseException | int) -> None:
        module = ModuleType("replicarouter.cli.attempted")

        def run(_: object) -> int:
            if isinstance(ending, int):
                return ending
            raise ending

        module.run = run  # type: ignore[attr-defined]
        module.add_arguments = lambda parser: None  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, "try", Command(module.__name__, "end somehow"))

    return add


@pytest.mark.parametrize(
    ("ending", "status", "told"),
    [
        (0, 0, ""),
        (3, 3, ""),
        (CommandFailed("port 80 is taken"), 1, "replicarouter: port 80 is taken\n"),
        (SettingsError("port: bad"), 2, "replicarouter: port: bad\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=str,
)
def test_exit_status_says_how_a_command_ended(
    ending: BaseException | int,
    status: int,
    told: str,
    command: Callable[[BaseException | int], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(ending)
    assert main(["try"]) == status
    assert capsys.readouterr().err == told
