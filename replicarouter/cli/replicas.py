"""`replicarouter replicas`: the replicas of a running router, through its admin API."""

import argparse
import http.client
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from replicarouter.cli import CommandFailed
from replicarouter.cli.values import ADMIN, admin_url, label, seconds_or_zero
from replicarouter.errors import InvalidApiKey, UnknownPath
from replicarouter.words import counted

NAME = "replicas"
HELP = "list, add, drain and remove replicas of a running router"

TOKEN_VARIABLE = "REPLICAROUTER_ADMIN__TOKEN"  # noqa: S105  the name of a variable
PATH = "/admin/replicas"

ANSWER_TIMEOUT = 30.0
"""Seconds for the router to answer; it does so at once unless it is overloaded."""

POLL_INTERVAL = 0.2
"""Seconds between two looks while waiting for a replica to become idle."""

_COLUMNS = (
    "name",
    "state",
    "outstanding",
    "running",
    "waiting",
    "weight",
    "origin",
    "models",
    "labels",
    "why",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the five things that can be done with replicas."""
    actions = parser.add_subparsers(metavar="ACTION", title="actions", required=True)
    one = actions.add_parser("list", help="all replicas, what is believed of each, and what runs there")
    one.add_argument("--json", action="store_true", help="Print what the router answers, not a table.")
    one.set_defaults(act=_list)
    _add_action(actions.add_parser("add", help="one more replica; it gets requests when its probes pass"))
    drain = actions.add_parser("drain", help="give a replica nothing new; what runs there goes on")
    drain.set_defaults(act=_drain)
    undrain = actions.add_parser("undrain", help="give a drained replica requests again")
    undrain.set_defaults(act=_undrain)
    remove = actions.add_parser("remove", help="drain a replica, and forget it when nothing runs there")
    remove.set_defaults(act=_remove)
    for action in (drain, undrain, remove):
        action.add_argument("name", metavar="NAME", help="Its name, as `list` shows it.")
    for action in (drain, remove):
        action.add_argument("--wait", action="store_true", help="Wait until nothing runs there.")
        action.add_argument(
            "--timeout",
            type=seconds_or_zero,
            metavar="SECONDS",
            help="Wait no longer than this, then fail; the order stands. Implies --wait. (default: no limit)",
        )
    for action in actions.choices.values():
        _add_connection(action)


def run(arguments: argparse.Namespace) -> int:
    """Do what the arguments say; raises `CommandFailed` with the router's message when it refuses."""
    if arguments.act is _add and arguments.url == "-" and _shaped(arguments):
        arguments.parser.error(
            "with `-` the whole entry is read from standard input; leave the other flags out"
        )
    text = arguments.act(_Router(arguments.admin, arguments.token), arguments)
    sys.stdout.write(text)
    return 0


def _add_connection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("router")
    group.add_argument(
        "--admin", metavar="URL", type=admin_url, default=ADMIN, help=f"Its admin port. (default: {ADMIN})"
    )
    group.add_argument(
        "--token",
        metavar="TOKEN",
        default=os.environ.get(TOKEN_VARIABLE),
        help=f"Its admin token; better given as {TOKEN_VARIABLE}, which other users cannot see.",
    )
    parser.set_defaults(parser=parser)


def _add_action(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url", metavar="URL", help="Where it listens; `-` reads a whole entry of `replicas:` as JSON."
    )
    parser.add_argument("--name", metavar="NAME", help="Its name. (default: host:port)")
    parser.add_argument(
        "--weight", metavar="NUMBER", type=float, help="Its share against others. (default: 1)"
    )
    parser.add_argument("--max-outstanding", metavar="N", type=int, help="Most outstanding requests there.")
    parser.add_argument("--engine", metavar="NAME", help="Its software. (default: told by its metrics)")
    parser.add_argument(
        "--model",
        metavar="NAME",
        action="append",
        help="A model it serves; may repeat. (default: it is asked)",
    )
    parser.add_argument(
        "--label", metavar="KEY=TEXT", action="append", type=label, help="A word about it; may repeat."
    )
    parser.set_defaults(act=_add)


# The actions


def _list(router: "_Router", arguments: argparse.Namespace) -> str:
    document = router.ask("GET", PATH)
    if arguments.json:
        return f"{json.dumps(document, indent=2)}\n"
    return _table([[_cell(row.get(name)) for name in _COLUMNS] for row in document["replicas"]])


def _add(router: "_Router", arguments: argparse.Namespace) -> str:
    entry = sys.stdin.read() if arguments.url == "-" else json.dumps(_entry(arguments))
    row = router.ask("POST", PATH, entry.encode())
    return f"{row['name']} added; it gets requests when its probes pass\n"


def _drain(router: "_Router", arguments: argparse.Namespace) -> str:
    row = router.ask("POST", f"{_path(arguments.name)}/drain")
    if row["outstanding"] and _waits(arguments):
        _wait(router, arguments)
        row["outstanding"] = 0
    if row["outstanding"]:
        return f"{arguments.name} drains; {_still(row['outstanding'])} there\n"
    return f"{arguments.name} is drained; nothing runs there\n"


def _undrain(router: "_Router", arguments: argparse.Namespace) -> str:
    row = router.ask("POST", f"{_path(arguments.name)}/undrain")
    return f"{arguments.name} is {row['state']}\n"


def _remove(router: "_Router", arguments: argparse.Namespace) -> str:
    row = router.ask("DELETE", _path(arguments.name))
    if row and _waits(arguments):
        _wait(router, arguments)
        row = None
    if row:
        return f"{arguments.name} leaves; {_still(row['outstanding'])} there\n"
    return f"{arguments.name} is removed\n"


def _wait(router: "_Router", arguments: argparse.Namespace) -> None:
    """Until nothing runs there, or it has gone."""
    end = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    while True:
        rows = router.ask("GET", PATH)["replicas"]
        left = sum(row["outstanding"] for row in rows if row["name"] == arguments.name)
        if not left:
            return
        if end is not None and time.monotonic() >= end:
            raise CommandFailed(
                f"{_still(left)} at {arguments.name} after {counted(arguments.timeout, 'second')}; "
                "it goes on draining"
            )
        time.sleep(POLL_INTERVAL)


# Asking


@dataclass(frozen=True, slots=True)
class _Router:
    """A router's admin port; `admin` is a URL that `_admin_url` let pass."""

    admin: str
    token: str | None

    def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Its answer, None when that is empty; raises `CommandFailed` for a refusal or none at all."""
        parts = urlsplit(self.admin)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_TIMEOUT)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(
                f"no router answers at {self.admin}: {error or type(error).__name__}"
            ) from None
        except ValueError:
            raise CommandFailed("the token holds characters that no token can have") from None
        finally:
            connection.close()
        return self._understood(answer.status, content)

    def _understood(self, status: int, content: bytes) -> Any:
        if status == http.HTTPStatus.NO_CONTENT:
            return None
        try:
            document = json.loads(content)
            if status < http.HTTPStatus.BAD_REQUEST:
                return document
            error = document["error"]
            code, message, param = error["code"], error["message"], error.get("param")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CommandFailed(f"{self.admin} is no router's admin port: it answers {status}") from None
        refused = code == InvalidApiKey.code
        astray = code == UnknownPath.code and "admin API" not in message
        if astray or (refused and "API key" in message):
            raise CommandFailed(
                f"{self.admin} is the clients' port; give --admin the admin port, such as {ADMIN}"
            )
        if refused and param == "authorization":
            raise CommandFailed(
                f"the token is wrong: {self.admin} has another admin.token"
                if self.token
                else f"the admin port asks for its token: give --token, or set {TOKEN_VARIABLE}"
            )
        raise CommandFailed(message)


def _path(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


# Words


def _entry(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"url": arguments.url, **_shaped(arguments)}


def _shaped(arguments: argparse.Namespace) -> dict[str, Any]:
    """What flags say of a new replica, by the names of its settings."""
    given = {
        "name": arguments.name,
        "weight": arguments.weight,
        "max_outstanding": arguments.max_outstanding,
        "engine": arguments.engine,
        "models": arguments.model,
        "labels": dict(arguments.label) if arguments.label else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _still(outstanding: int) -> str:
    return f"{counted(outstanding, 'request')} still {'runs' if outstanding == 1 else 'run'}"


def _waits(arguments: argparse.Namespace) -> bool:
    return bool(arguments.wait) or arguments.timeout is not None


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; numbers stand under their titles like words."""
    lines = [_COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _cell(value: object) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    match value:
        case float():
            return f"{value:g}"
        case list():
            return ",".join(str(item) for item in value)
        case dict():
            return ",".join(f"{key}={item}" for key, item in value.items())
        case _:
            return str(value)
