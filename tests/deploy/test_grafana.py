"""The dashboard: sound as a document, and every query of it answered by a real Prometheus."""

from itertools import combinations, pairwise
from typing import Any

import pytest
import yaml

from tests.deploy import dashboard as grafana
from tests.deploy.dashboard import (
    GRAFANA,
    Query,
    charts,
    names_in,
    panels,
    queries,
    query_variables,
    variables,
)
from tests.deploy.scene import Seen, finite

WIDTH = 24
DATA = {"type": "prometheus", "uid": "${datasource}"}
QUERIES = queries()


def test_ids_and_titles_are_told_apart() -> None:
    every = list(panels())
    assert len({panel["id"] for panel in every}) == len(every)
    titles = [(panel["title"], panel["description"]) for panel in charts()]
    assert len(set(titles)) == len(titles)
    assert all(title and description for title, description in titles)


def test_no_panel_covers_another() -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in panels()]
    for title, place in places:
        assert place["x"] >= 0, title
        assert place["w"] >= 1, title
        assert place["x"] + place["w"] <= WIDTH, title
    for (one, first), (other, second) in combinations(places, 2):
        assert not overlap(first, second), (one, other)


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or below)


def test_rows_have_panels_below_them() -> None:
    kinds = [panel["type"] for panel in sorted(panels(), key=lambda panel: panel["gridPos"]["y"])]
    assert kinds[0] == "row"
    assert kinds[-1] != "row"
    assert ("row", "row") not in set(pairwise(kinds))


def test_all_data_come_from_the_source_that_is_chosen() -> None:
    assert [one["type"] for one in variables() if one["name"] == "datasource"] == ["datasource"]
    for panel in charts():
        assert [panel["datasource"], *(target["datasource"] for target in panel["targets"])] == [
            DATA,
            *(DATA for _ in panel["targets"]),
        ], panel["title"]
    for variable in query_variables().values():
        assert variable["datasource"] == DATA


def test_letters_of_queries_are_told_apart() -> None:
    for panel in charts():
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), panel["title"]


def test_variables_are_there_and_used() -> None:
    named = {variable["name"] for variable in variables()} - {"datasource"}
    used = set().union(*(names_in(query.expression) for query in QUERIES))
    assert used - set(grafana.BUILT_IN) == named
    assert all("instance" in names_in(query.expression) for query in QUERIES)


@pytest.mark.parametrize(
    "panel", [one for one in charts() if one["type"] == "table"], ids=lambda one: one["title"]
)
def test_columns_of_tables_are_those_of_their_queries(panel: dict[str, Any]) -> None:
    """A heading that no query gives stays empty without a word."""
    (organize,) = [step["options"] for step in panel["transformations"] if step["id"] == "organize"]
    letters = [target["refId"] for target in panel["targets"]]
    values = {f"Value #{letter}" for letter in letters} if len(letters) > 1 else {"Value"}
    named = set(organize["indexByName"]) | set(organize["excludeByName"])
    assert {name for name in named if name.startswith("Value")} == values
    shown = {organize["renameByName"].get(name, name) for name in organize["indexByName"]}
    overridden = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
    assert overridden <= shown


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_query_returns_series(seen: Seen, query: Query) -> None:
    assert any(finite(row) for row in seen.answers[query.filled]), query.filled


@pytest.mark.parametrize("name", query_variables())
def test_every_variable_has_choices(seen: Seen, name: str) -> None:
    series, label = grafana.choices(query_variables()[name])
    assert all(row["metric"][label] for row in seen.answers[series])


def test_legends_name_labels_that_there_are(seen: Seen) -> None:
    for panel in charts():
        for target in panel["targets"]:
            wanted = {part.partition("}}")[0] for part in target["legendFormat"].split("{{")[1:]}
            for row in seen.answers[grafana.fill(target["expr"])]:
                assert wanted <= set(row["metric"]), (panel["title"], target["legendFormat"], row)


def test_files_for_provisioning_name_what_is_here() -> None:
    (source,) = provisioned("datasources")["datasources"]
    assert (source["type"], source["uid"], source["url"]) == (
        "prometheus",
        "replicarouter-prometheus",
        "$PROMETHEUS_URL",
    )
    (provider,) = provisioned("dashboards")["providers"]
    assert (provider["type"], provider["options"]["path"]) == ("file", "/var/lib/grafana/dashboards")


def provisioned(kind: str) -> dict[str, Any]:
    found = yaml.safe_load((GRAFANA / "provisioning" / kind / "replicarouter.yml").read_text())
    assert isinstance(found, dict)
    return found
