"""The runbook says nothing that is not so: its commands, paths, names, links and tables are tried."""

import ast
import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicarouter import errors
from replicarouter.cli import _parser
from replicarouter.cli.config import _reference
from replicarouter.diagnosis.owners import OWNERS
from replicarouter.exchange import Stage
from tests.fakes.replica import FakeReplica
from tests.fakes.running import StartRouter

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "deploy" / "README.md"
TEXT = RUNBOOK.read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, title
    return found.group(1)


def command_lines() -> Iterator[str]:
    """Those of the indented blocks and of `code` in lines, without what is piped behind them."""
    for line in TEXT.splitlines():
        if line.startswith("    "):
            yield line.strip()
        else:
            yield from re.findall(r"`([^`]+)`", line)


def router_commands() -> Iterator[tuple[str, ...]]:
    """What is given to the program, whatever runs it: a path, a container, a loop."""
    for line in command_lines():
        found = re.match(
            r"(?:until |docker compose exec router |/\S+/|\.venv/bin/)?replicarouter ([a-z][^|;#]*)", line
        )
        if found:
            yield tuple(shlex.split(found.group(1)))


COMMANDS = sorted(set(router_commands()))


def test_commands_are_found() -> None:
    assert {words[0] for words in COMMANDS} == {"check", "config", "diagnose", "replicas", "serve"}
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_program_takes_the_command(words: tuple[str, ...]) -> None:
    arguments, unknown = _parser(words).parse_known_args(words)
    assert callable(arguments.run)
    assert unknown == []


# What it names


def test_every_outcome_is_explained() -> None:
    rows = [row.split("|")[1] for row in section("How a request can end").splitlines() if row.startswith("|")]
    told = set(re.findall(r"`(\w+)`", " ".join(rows))) - {stage.label for stage in Stage}
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = {one.code for one in classes if issubclass(one, errors.RouterError)}
    of_the_admin_port = {"unknown_replica", "unknown_request", "replica_exists"}
    assert told == codes - of_the_admin_port | {"ok", "client_gone", "upstream_error"}
    for code in of_the_admin_port:
        assert f"`{code}`" in section("How a request can end")


def test_every_stage_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("How a request can end"), re.MULTILINE)
    assert [stage.label for stage in Stage if stage.label not in rows] == []


def test_the_status_of_every_outcome_is_that_of_the_program() -> None:
    by_code = {
        one.code: one.status
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.RouterError)
    }
    for row in section("How a request can end").splitlines():
        for code in re.findall(r"`(\w+)`", row.split("|")[1]) if row.startswith("|") else ():
            if code in by_code:
                assert str(by_code[code]) in row.split("|")[2], code


def test_every_verdict_is_named_and_no_other() -> None:
    codes = set()
    for file in (ROOT / "replicarouter" / "diagnosis").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Verdict":
                codes.add(ast.literal_eval(node.args[0]))
    assert set().union(*owned().values()) == codes


def owned() -> dict[str, set[str]]:
    """The codes of the verdicts by whose they are."""
    (rows,) = re.findall(r"\| whose it is \| codes \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT)
    cells = [row.split("|")[1:3] for row in rows.splitlines()]
    return {whose.strip(): set(re.findall(r"`(\w+)`", codes)) for whose, codes in cells}


def test_a_verdict_is_whose_the_program_says_it_is() -> None:
    """Those that are the router's or another's by their cause stand with the router's."""
    rows = owned()
    (by_cause,) = (codes for whose, codes in rows.items() if "router" in whose)
    for name, codes in OWNERS.items():
        (row,) = (codes for whose, codes in rows.items() if re.search(rf"\b{name}(?:'s)?$", whose))
        assert codes - by_cause <= row, name


def table(head: str) -> list[str]:
    """The first cells of a table's rows."""
    (rows,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [row.split("|")[1] for row in rows.splitlines()]


def test_every_field_of_a_requests_line_is_explained() -> None:
    source = (ROOT / "replicarouter" / "telemetry" / "access_log.py").read_text()
    written = set(re.findall(r'facts\["(\w+)"\]', source)) | {"request_id"}
    intervals = (ROOT / "replicarouter" / "exchange.py").read_text().partition("def intervals")[2]
    written |= set(re.findall(r'\("(\w+)", ', intervals.partition("def ")[0]))
    assert set(re.findall(r"`(\w+)`", " ".join(table("field of a request's line")))) == written


def test_every_event_it_names_is_logged_and_every_warning_is_named() -> None:
    source = "".join(file.read_text() for file in (ROOT / "replicarouter").rglob("*.py"))
    events = re.findall(r"`([^`]+)`", " ".join(table("event")))
    assert len(events) > 10
    assert [event for event in events if f'"{event}"' not in source] == []
    warnings = set(re.findall(r'log\.warning\(\s*"([^"]+)"', source))
    assert len(warnings) > 8
    assert warnings - set(events) == set()


def test_what_an_operator_has_written_is_not_overwritten_by_a_second_installation() -> None:
    """The files of settings are in a block of their own, which says so."""
    blocks = re.findall(r"(?:^    .+\n)+", section("Installing"), re.MULTILINE)
    (settings,) = [block for block in blocks if "/etc/replicarouter" in block and "install -D" in block]
    assert all("/etc/replicarouter" in line for line in settings.splitlines())
    assert "overwrite" in TEXT.partition(settings)[0].rpartition("\n    ")[2]


def test_every_setting_it_names_exists() -> None:
    keys = set(re.findall(r"^\| `([^`]+)` \|", _reference(None), re.MULTILINE))  # type: ignore[arg-type]
    sections = {key.partition(".")[0] for key in keys if "." in key} - {"replicas[]"}
    named = set(re.findall(r"`((?:" + "|".join(sorted(sections)) + r")\.\w+)(?::[^`]*)?`", TEXT))
    assert len(named) > 30
    assert named <= keys


async def test_every_path_it_asks_for_is_answered(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    asked = set(re.findall(r"http://127\.0\.0\.1:808([01])(/[\w/]*)", TEXT))
    assert len(asked) > 7
    for port, path in asked:
        if "REQUEST_ID" not in path:
            answer = await (router.get(path) if port == "0" else router.admin(path))
            assert answer.status == 200, (port, path)


async def test_every_series_it_names_exists(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    page = (await router.get("/metrics")).body.entity.decode()
    names = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    assert set(re.findall(r"replicarouter_[a-z_]+", TEXT)) <= names
    for pattern in re.findall(r"/metrics \| grep (?:-E )?'?([\w|]+)", TEXT):
        for part in pattern.split("|"):
            assert any(part in name for name in names), part


def anchors(file: Path) -> set[str]:
    """As GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", TEXT)
    assert len(links) > 40
    for path, anchor in links:
        file = RUNBOOK.parent / path if path else RUNBOOK
        assert file.exists(), path
        if anchor:
            assert anchor in anchors(file), (path, anchor)


def test_every_file_of_the_repository_it_names_exists() -> None:
    for path in re.findall(r"\bdeploy/[\w./@*-]+\w", TEXT):
        assert list(ROOT.glob(path)), path


def test_an_installation_puts_the_files_where_the_units_look_for_them(tmp_path: Path) -> None:
    lines = [line.strip() for line in section("Installing").splitlines() if line.startswith("    install ")]
    script = "\n".join(re.sub(r" (?=/(?:etc|usr)/)", f" {tmp_path}", line) for line in lines)
    subprocess.run(["sh", "-euc", script], cwd=ROOT, check=True)
    installed = {
        str(file.relative_to(tmp_path)): file.stat().st_mode & 0o777
        for file in tmp_path.rglob("*")
        if file.is_file()
    }
    assert installed == {
        "usr/local/bin/vllm-replica": 0o755,
        "etc/systemd/system/replicarouter.service": 0o644,
        "etc/systemd/system/replicarouter.target": 0o644,
        "etc/systemd/system/vllm@.service": 0o644,
        "etc/replicarouter/router.yaml": 0o644,
        "etc/replicarouter/vllm.env": 0o644,
        "etc/replicarouter/router.env": 0o600,
    }


async def test_a_rolling_restart_sees_that_a_replica_is_ready(start_router: StartRouter) -> None:
    """By the pattern that the loop greps for in what `replicas list` prints."""
    (pattern,) = re.findall(r'replicas list \| grep -q "([^"]+)"', TEXT)
    fake = FakeReplica()
    router = await start_router(fake)
    wanted = pattern.replace("127.0.0.1:800$((gpu + 1))", fake.name)
    assert wanted != pattern

    async def printed() -> str:
        words = ("replicas", "list", "--admin", f"http://127.0.0.1:{router.admin_port}")
        command = [sys.executable, "-m", "replicarouter", *words]
        return await asyncio.to_thread(subprocess.check_output, command, text=True)

    assert re.search(wanted, await printed())
    await router.admin(f"/admin/replicas/{fake.name}/drain", "POST")
    assert not re.search(wanted, await printed())
