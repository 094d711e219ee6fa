"""`replicarouter config`, run as its users run it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from replicarouter.cli import main
from replicarouter.errors import SettingsError
from replicarouter.settings import ReplicaSettings, Settings, TracingSettings
from replicarouter.settings.keys import keys_of
from replicarouter.tracing.opening import open_exporter
from tests.scene import a_fleet

URL = "http://127.0.0.1:8001"
SECRET = "sk-very-secret"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for variable in os.environ:
        if variable.startswith("REPLICAROUTER_"):
            monkeypatch.delenv(variable)

    def run(*words: str, environ: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        for variable, value in (environ or {}).items():
            monkeypatch.setenv(variable, value)
        status = main(["config", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "router.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def rows(table: str) -> dict[str, tuple[str, str]]:
    """Read the aligned table: key → (value, origin)."""
    found = {}
    for line in table.splitlines():
        key, value, origin = (part.strip() for part in line.split("  ") if part.strip())
        found[key] = (value, origin)
    return found


def test_show_lists_every_setting_with_its_origin(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "log: {level: debug}\nhealth: {interval: 5}\n")
    status, table, errors = run(
        "show",
        "--config",
        file,
        "--replica",
        URL,
        "--port",
        "9000",
        environ={"REPLICAROUTER_HEALTH__INTERVAL": "7"},
    )
    shown = rows(table)
    assert (status, errors) == (0, "")
    assert shown["port"] == ("9000", "flag --port")
    assert shown["health.interval"] == ("7", "environment REPLICAROUTER_HEALTH__INTERVAL")
    assert shown["log.level"] == ("debug", file)
    assert shown["admin.port"] == ("8081", "default")
    assert shown["max_body_bytes"] == ("256 MiB", "default")
    assert shown["admin.token"] == ("none", "default")
    assert shown["replicas[0]"] == (f"{URL} (name 127.0.0.1:8001)", "flag --replica")
    names = {key.name for key in keys_of(Settings)} - {"replicas"}
    assert shown.keys() == names | {"replicas[0]"}


def test_show_says_what_is_configured_of_each_replica(run: Run, tmp_path: Path) -> None:
    text = f"replicas: ['{URL}', {{url: 'http://b:1', name: two, weight: 2, api_key: {SECRET}}}]"
    status, table, _ = run("show", "--config", write(tmp_path, text))
    assert status == 0
    assert rows(table)["replicas[1]"][0] == "http://b:1 (name two, weight 2, api_key ***)"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_show_masks_secrets(form: list[str], run: Run, tmp_path: Path) -> None:
    text = f"admin: {{token: {SECRET}}}\nreplicas: [{{url: '{URL}', api_key: {SECRET}}}]"
    status, shown, errors = run("show", *form, "--config", write(tmp_path, text))
    assert status == 0
    assert "***" in shown
    assert SECRET not in shown + errors


def test_show_as_json_has_the_tree_and_the_origins(run: Run) -> None:
    status, text, _ = run("show", "--json", "--replica", URL, "--connector-limit", "64")
    shown = json.loads(text)
    assert status == 0
    assert shown["settings"]["connector"]["limit"] == 64
    assert shown["settings"]["replicas"][0]["url"] == URL
    assert shown["origins"]["connector.limit"] == "flag --connector-limit"
    assert shown["origins"].keys() == {key.name for key in keys_of(Settings)}


def test_shown_json_is_a_settings_file(run: Run, tmp_path: Path) -> None:
    _, text, _ = run("show", "--json", "--replica", URL)
    file = write(tmp_path, json.dumps(json.loads(text)["settings"]))
    assert run("check", file)[0] == 0


def test_show_tells_bad_settings(run: Run) -> None:
    status, shown, errors = run("show", "--replica", URL, "--port", "x")
    assert (status, shown) == (2, "")
    assert errors.startswith("replicarouter: port: 'x' (flag --port) is refused")


def test_show_tells_the_policies_of_pools_and_their_origin(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, f"replicas: [{URL}]\npools: {{m1: {{policy: session}}}}\n")
    _, shown, _ = run("show", "--config", file)
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("pools ")]
    assert row == ["pools", "m1:", "policy:", "session", file]


@pytest.mark.parametrize(
    ("replicas", "summary"),
    [("[http://a:1]", "1 replica, policy random"), ("[http://a:1, http://b:1]", "2 replicas, ")],
)
def test_check_sums_up_a_good_file(replicas: str, summary: str, run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, f"replicas: {replicas}\npolicy: random\n")
    status, told, errors = run("check", file)
    assert (status, errors) == (0, "")
    assert told.startswith(f"{file}: OK, {summary}")


def test_check_tells_all_problems_of_a_file(run: Run, tmp_path: Path) -> None:
    status, told, errors = run("check", write(tmp_path, f"prot: 1\nport: x\nreplicas: [{URL}]"))
    assert (status, told) == (2, "")
    assert len(errors.splitlines()) == 2
    assert "router.yaml line 1" in errors
    assert "router.yaml line 2" in errors


def test_check_looks_at_the_file_alone(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "port: 1")
    assert run("check", file, environ={"REPLICAROUTER_REPLICAS": URL})[0] == 2


def test_check_of_a_missing_file_says_so(run: Run) -> None:
    status, _, errors = run("check", "nowhere.yaml")
    assert (status, errors) == (2, "replicarouter: nowhere.yaml: no such file\n")


def resolve(schema: dict[str, object], part: object) -> dict[str, object]:
    assert isinstance(part, dict)
    if "$ref" in part:
        definitions = schema["$defs"]
        assert isinstance(definitions, dict)
        return resolve(schema, definitions[part["$ref"].rpartition("/")[2]])
    return part


def test_schema_describes_every_setting(run: Run) -> None:
    status, text, _ = run("schema")
    schema = json.loads(text)
    assert status == 0
    for key in keys_of(Settings):
        part = schema
        for name in key.path:
            assert part["additionalProperties"] is False
            part = resolve(schema, part["properties"][name])
        assert part.get("description"), key.name


def test_schema_knows_both_forms_of_a_replica_and_of_bytes(run: Run) -> None:
    schema = json.loads(run("schema")[1])
    replica = resolve(schema, schema["properties"]["replicas"]["items"])
    forms = replica["anyOf"]
    assert isinstance(forms, list)
    assert [form["type"] for form in forms] == ["string", "object"]
    assert forms[1]["required"] == ["url"]
    size = schema["properties"]["max_body_bytes"]["anyOf"]
    assert [form["type"] for form in size] == ["integer", "string"]
    assert "random" in schema["properties"]["policy"]["enum"]


def test_reference_has_a_row_for_every_setting(run: Run) -> None:
    status, table, _ = run("reference")
    lines = table.splitlines()
    assert status == 0
    assert lines[:2] == ["| key | flag | default | meaning |", "|---|---|---|---|"]
    names = [key.name for key in keys_of(Settings)]
    inside = [f"replicas[].{key.name}" for key in keys_of(ReplicaSettings)]
    at = names.index("replicas") + 1
    assert [line.split("`")[1] for line in lines[2:]] == [*names[:at], *inside, *names[at:]]
    assert all(line.replace(r"\|", "").count("|") == 5 for line in lines)
    assert (
        "| `timeouts.connect` | `--connect-timeout SECONDS` | `5` | Seconds for one new connection "
        "to a replica, TCP and TLS; 0 for no limit. |"
    ) in lines


def test_reference_says_what_this_version_does_not_do(run: Run) -> None:
    lines = run("reference")[1].splitlines()
    (role,) = (line for line in lines if line.startswith("| `replicas[].role`"))
    assert role.endswith("(in this version only the default) |")


def test_output_that_nobody_reads_any_more_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "replicarouter", "config", "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors == b""


def test_check_says_that_the_extra_for_spans_is_missing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `serve` does."""
    endpoint = "http://127.0.0.1:4318"
    file = write(tmp_path, f"replicas: ['{URL}']\ntracing: {{otlp_endpoint: '{endpoint}'}}\n")
    assert run("check", file)[0] == 0
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    for name in ("exporter", "spans"):
        monkeypatch.delitem(sys.modules, f"replicarouter.tracing.{name}", raising=False)
    status, output, errors = run("check", file)
    assert (status, output) == (2, "")
    assert errors.startswith(f"replicarouter: tracing.otlp_endpoint: '{endpoint}' needs the extra `otel`")
    assert "pip install '.[otel]'" in errors
    with pytest.raises(SettingsError) as told:
        open_exporter(
            TracingSettings(otlp_endpoint=endpoint), a_fleet("a"), version="1", clock=time.monotonic
        )
    assert errors == f"replicarouter: {told.value}\n"


def test_the_two_ports_say_what_0_means_to_each(run: Run) -> None:
    _, table, _ = run("reference")
    (clients,) = [line for line in table.splitlines() if line.startswith("| `port` ")]
    (admin,) = [line for line in table.splitlines() if line.startswith("| `admin.port` ")]
    assert "`admin.port` 0 is none" in clients
    assert "`port` 0 takes a free one" in admin
