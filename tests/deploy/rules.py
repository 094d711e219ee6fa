"""The rules of `deploy/prometheus` as Prometheus reads them."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"


@cache
def document(name: str) -> dict[str, Any]:
    """One of the files."""
    found = yaml.safe_load((PROMETHEUS / name).read_text())
    assert isinstance(found, dict)
    return found


def rules(name: str) -> list[dict[str, Any]]:
    """The rules of one of the files."""
    return [rule for group in document(name)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    found = rules("alerts.yml")
    named = {rule["alert"]: rule for rule in found}
    assert len(named) == len(found)
    return named


def recorded() -> set[str]:
    """The series that rules record, each with the labels that its rule adds."""
    return {rule["record"] + _selector(rule.get("labels", {})) for rule in rules("rules.yml")}


def _selector(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""
