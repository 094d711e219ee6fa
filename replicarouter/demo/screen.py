"""The display on a terminal: a table that is redrawn at each look."""

from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replicarouter.demo.figures import Look
from replicarouter.demo.ledger import LedgerReading
from replicarouter.demo.text import flag, number, share
from replicarouter.words import seconds_text

ALARM = "bold red"
QUIET = "dim"


class Screen:
    """Draws on `console`; use it as a context manager. What was drawn last stays."""

    def __init__(self, heading: str, console: Console) -> None:
        self._heading = Text(heading)
        # Nothing is drawn between looks: the users share this process, and drawing takes their time.
        self._live = Live(self._heading, console=console, auto_refresh=False)

    def __enter__(self) -> "Screen":
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, look: Look) -> None:
        """Redraw."""
        self._live.update(Group(self._heading, *picture(look)), refresh=True)


def picture(look: Look) -> list[RenderableType]:
    """The parts of the display, from top to bottom; 80 columns hold them."""
    return [_stages(look), _limits(look.ledger), Text(), _replicas(look.ledger), Text(), _users(look)]


def _table(*, gap: int) -> Table:
    return Table(box=SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)


def _stages(look: Look) -> Table:
    ledger = look.ledger
    table = _table(gap=1)
    table.add_column(f"after {look.seconds:.0f} s")
    for name in (*ledger.stages, "accepted"):
        table.add_column(name, justify="right")
    held = {"queued": ledger.stages["queued"], "connecting": ledger.connector_waiting}
    cells = [
        Text(number(count), style=ALARM if held.get(stage) else "") for stage, count in ledger.stages.items()
    ]
    table.add_row("all requests", *cells, Text(number(ledger.accepted), style="bold"))
    return table


def _limits(ledger: LedgerReading) -> Text:
    limit = number(ledger.connector_limit) if ledger.connector_limit else "none"
    text = Text(f"connector limit {limit}, ")
    text.append(
        f"waiting for it {number(ledger.connector_waiting)}", style=ALARM if ledger.connector_waiting else ""
    )
    text.append(f"; unexplained {number(ledger.unexplained)}; ")
    text.append(
        f"proxy_limited {flag(ledger.proxy_limited)}", style=ALARM if ledger.proxy_limited else "green"
    )
    return text


def _replicas(ledger: LedgerReading) -> Table:
    table = _table(gap=0)
    table.add_column("replica")
    for name in ("connecting", "sent", "streaming", "outstanding"):
        table.add_column(name, justify="right")
    for name in ("running", "waiting", "KV", "age"):
        table.add_column(name, justify="right", style="cyan")
    for row in ledger.replicas:
        shown = Text(row.name)
        if row.state != "ready":
            shown.append(f" {row.state}", style=ALARM)
        table.add_row(
            shown,
            number(row.connecting),
            number(row.sent),
            number(row.streaming),
            number(row.outstanding),
            number(row.running),
            number(row.waiting),
            share(row.kv_usage),
            "–" if row.reading_age is None else f"{row.reading_age:.1f} s",
        )
    return table


def _users(look: Look) -> Text:
    users = look.users
    text = Text(
        f"users: TTFT p50 {seconds_text(users.ttft_p50)}, p90 {seconds_text(users.ttft_p90)}; "
        f"{number(users.events_per_second)} events/s, {users.requests_per_second:,.1f} requests/s"
    )
    text.append(f", {number(users.failed)} failed", style=ALARM if users.failed else QUIET)
    return text
