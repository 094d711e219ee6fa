"""The dashboard as Grafana reads it: its panels, its queries, its variables."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"

BUILT_IN = {"__rate_interval": "1m", "__interval": "1s", "__range": "1m"}
"""What Grafana itself puts into queries."""

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Query:
    """One query, by the title of its panel and its letter there; `expression` as it stands in the file."""

    panel: str
    letter: str
    expression: str

    def __str__(self) -> str:
        return f"{self.panel}/{self.letter}"

    @property
    def filled(self) -> str:
        """With all variables at their defaults: everything."""
        return fill(self.expression)


def fill(expression: str) -> str:
    """Put values in the place of the variables, as Grafana does before it asks."""
    values = {**BUILT_IN, **{name: variable["allValue"] for name, variable in query_variables().items()}}
    return _VARIABLE.sub(lambda found: str(values[found[1]]), expression)


def dashboard() -> dict[str, Any]:
    """The file."""
    document = json.loads((GRAFANA / "dashboards" / "replicarouter.json").read_text())
    assert isinstance(document, dict)
    return document


def panels() -> Iterator[dict[str, Any]]:
    """All panels, the rows too."""
    for panel in dashboard()["panels"]:
        yield panel
        yield from panel.get("panels", [])


def charts() -> list[dict[str, Any]]:
    """All panels that show something."""
    return [panel for panel in panels() if panel["type"] != "row"]


def queries() -> list[Query]:
    """Every query of a panel, and of what is drawn over all of them."""
    found = [
        Query(panel["title"], target["refId"], target["expr"])
        for panel in charts()
        for target in panel["targets"]
    ]
    overlays = dashboard()["annotations"]["list"]
    return found + [Query(one["name"], "expr", one["expr"]) for one in overlays if "expr" in one]


def variables() -> list[dict[str, Any]]:
    """What can be chosen at the top."""
    return list(dashboard()["templating"]["list"])


def query_variables() -> dict[str, dict[str, Any]]:
    """Those whose choices come from a query, by name."""
    return {variable["name"]: variable for variable in variables() if variable["type"] == "query"}


def choices(variable: dict[str, Any]) -> tuple[str, str]:
    """The series that a variable's choices are taken from, and the label."""
    found = _VALUES.fullmatch(variable["query"]["query"])
    assert found is not None, variable["query"]
    return fill(found[1]), found[2]


def names_in(expression: str) -> set[str]:
    """The variables that an expression mentions."""
    return set(_VARIABLE.findall(expression))
