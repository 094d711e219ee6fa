"""The shell of the status page: open to everybody, complete, and unable to load or run anything else."""

import re

import pytest

from replicarouter.admin.page_files import PAGE_PATHS, SHELL
from tests.admin.conftest import Door, Open
from tests.fakes.client import request

SCRIPTS = sorted(path for path in PAGE_PATHS if path.endswith(".js"))


async def text(door: Door, path: str) -> str:
    answer = await door.ask(path)
    assert answer.status == 200
    return answer.body.entity.decode()


@pytest.mark.parametrize("path", sorted(PAGE_PATHS))
async def test_every_file_is_there_without_the_token(open_door: Open, path: str) -> None:
    door = await open_door(token="secret")
    answer = await door.ask(path, Host="router.example")
    assert answer.status == 200
    assert answer.body.entity
    assert "secret" not in answer.body.entity.decode()


@pytest.mark.parametrize("path", sorted(PAGE_PATHS))
async def test_nothing_foreign_and_nothing_inline_may_run(open_door: Open, path: str) -> None:
    answer = await (await open_door()).ask(path)
    policy = answer.head.get("Content-Security-Policy")
    assert policy is not None
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert {directives[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert directives["frame-ancestors"] == "'none'"
    assert directives["require-trusted-types-for"] == "'script'"
    assert answer.head.get("X-Content-Type-Options") == "nosniff"


async def test_the_shell_refers_to_files_that_are_there(open_door: Open) -> None:
    shell = await text(await open_door(), SHELL)
    named = set(re.findall(r'(?:src|href)="(/[^"#]*)"', shell))
    assert named == {"/page/page.css", "/page/page.js", "/page/icon.svg"}
    assert named <= PAGE_PATHS
    assert "style=" not in shell
    assert not re.search(r"\son\w+=", shell)


@pytest.mark.parametrize("path", SCRIPTS)
async def test_scripts_import_each_other_and_make_no_markup(open_door: Open, path: str) -> None:
    script = await text(await open_door(), path)
    imported = {f"/page/{name}" for name in re.findall(r'from "\./([\w.]+)"', script)}
    assert imported <= PAGE_PATHS
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


async def test_elements_that_scripts_ask_for_are_in_the_shell(open_door: Open) -> None:
    door = await open_door()
    shell = await text(door, SHELL)
    asked = {name for path in SCRIPTS for name in re.findall(r'\$\("([\w-]+)"\)', await text(door, path))}
    assert asked
    assert asked <= set(re.findall(r'id="([\w-]+)"', shell))


async def test_a_browser_that_has_the_file_is_told_so(open_door: Open) -> None:
    door = await open_door()
    etag = (await door.ask(SHELL)).head.get("ETag")
    assert etag
    again = await door.ask(SHELL, **{"If-None-Match": etag})
    assert (again.status, again.body.entity) == (304, b"")
    assert (await door.ask(SHELL, **{"If-None-Match": '"other"'})).status == 200


@pytest.mark.parametrize("path", ["/page/", "/page/nothing.js", "/page/../api.py", "/page/%2e%2e/api.py"])
async def test_other_files_are_not(open_door: Open, path: str) -> None:
    assert (await (await open_door()).ask(path)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_the_shell_is_only_read(open_door: Open, method: str) -> None:
    door = await open_door()
    assert (await door.send(request(method, SHELL))).status == 405
