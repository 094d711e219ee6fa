"""The files for Prometheus: accepted by its own tools, and at work in a real one."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from replicarouter import errors
from replicarouter.errors import Fault, RouterError
from tests.deploy.fleets import TROUBLED, WELL
from tests.deploy.rules import PROMETHEUS, alerts, document, recorded, rules
from tests.deploy.scene import ASKED_BADLY, EXPECTED, Seen, finite, with_key
from tests.fakes.programs import program

RUNBOOK = PROMETHEUS.parent / "README.md"
SEVERITIES = {"critical", "warning", "info"}
ALERTS = alerts()


def promtool(*arguments: str, folder: Path = PROMETHEUS) -> str:
    """What it says; it must be content."""
    done = subprocess.run(
        [program("promtool", "prometheus"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Promtool


def test_configuration_and_rules_are_accepted() -> None:
    said = promtool("check", "config", "prometheus.yml")
    assert "2 rule files found" in said
    assert f"{len(ALERTS)} rules found" in said


def test_configuration_with_a_key_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    shutil.copytree(PROMETHEUS, folder)
    config = folder / "prometheus.yml"
    config.write_text(with_key(config.read_text()))
    (folder / "replicarouter.token").write_text("key\n")
    promtool("check", "config", "prometheus.yml", folder=folder)


@pytest.mark.parametrize("name", ["rules.test.yml", "alerts.test.yml"])
def test_rules_do_what_their_own_tests_say(name: str) -> None:
    promtool("test", "rules", name)


# Alerts as documents


@pytest.mark.parametrize("name", ALERTS)
def test_alert_says_how_bad_what_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in SEVERITIES
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    assert "$value" in notes["description"] or "| value" in notes["description"] or name in WITHOUT_VALUE
    assert notes["runbook"] == f"deploy/README.md#alert-{name.lower()}"


WITHOUT_VALUE = {"ReplicarouterReplicaLoading": "the state is all there is to say"}


def test_every_alert_has_its_runbook_entry_and_no_other_has_one() -> None:
    headings = re.findall(r"^#+ Alert (Replicarouter\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_alert_is_tested_to_fire_and_to_be_silent_before_and_in_health(name: str) -> None:
    looks = [
        (case["name"], look.get("exp_alerts", []))
        for case in document("alerts.test.yml")["tests"]
        for look in case.get("alert_rule_test", [])
        if look["alertname"] == name
    ]
    assert ("a fleet at work raises nothing", []) in looks
    assert any(expected for case, expected in looks if case == name)
    assert any(not expected for case, expected in looks if case == name)


def test_errors_are_all_outcomes_that_are_not_the_clients() -> None:
    (rule,) = [
        rule for rule in rules("rules.yml") if rule["record"] == "replicarouter:requests:error_ratio1m"
    ]
    (listed,) = re.findall(r'outcome=~"([^"]+)"', rule["expr"])
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, RouterError)]
    ours = {one.code for one in classes if one.fault is not Fault.CLIENT} | {"upstream_error"}
    # A queue that is full is the client's fault by its status, and what the router lacks all the same.
    assert set(listed.split("|")) == ours | {"queue_full"}


# A real Prometheus


def test_prometheus_reads_routers_and_engines(seen: Seen) -> None:
    assert {(one["labels"]["job"], one["health"], one["lastError"]) for one in seen.targets} == {
        ("replicarouter", "up", ""),
        ("engines", "up", ""),
    }
    assert {one["labels"]["instance"] for one in seen.targets} > {WELL, TROUBLED}


def test_every_rule_can_be_evaluated(seen: Seen) -> None:
    assert len(seen.rules) == len(rules("rules.yml")) + len(ALERTS)
    assert [rule["name"] for rule in seen.rules if rule["health"] != "ok"] == []


@pytest.mark.parametrize("name", sorted(recorded()))
def test_every_recorded_series_has_data(seen: Seen, name: str) -> None:
    assert any(finite(row) for row in seen.answers[name])


def test_stages_of_a_router_are_all_recorded(seen: Seen) -> None:
    rows = seen.answers["replicarouter:requests:by_stage"]
    stages = {row["metric"]["stage"] for row in rows if row["metric"]["instance"] == WELL}
    assert stages == {"receiving", "queued", "connecting", "sent", "streaming"}


def test_nothing_fires_while_a_router_is_well(seen: Seen) -> None:
    assert {name for name, instance in seen.fired if instance != TROUBLED} == set()


def test_what_an_engine_refuses_its_clients_raises_nothing(seen: Seen) -> None:
    assert finite(*seen.answers[ASKED_BADLY])
    assert ("ReplicarouterErrors", WELL) not in seen.fired


def test_router_that_is_short_of_connections_raises_its_alert(seen: Seen) -> None:
    alert = seen.firing_at(TROUBLED, "ReplicarouterProxyLimited")
    assert "(connector.limit 4)" in told(alert)
    (waiting,) = re.findall(r"(\d+) wait for a connector slot", told(alert))
    assert int(waiting) > 0


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_troubles_raise_their_alerts(seen: Seen, name: str) -> None:
    seen.firing_at(TROUBLED, name)


def told(alert: dict[str, Any]) -> str:
    return str(alert["annotations"]["description"])
