"""What does not go together inside one section."""

from typing import Any

import pytest
from pydantic import ValidationError

from replicarouter.settings.sections import AdminSettings, EjectSettings, LogSettings, TlsSettings
from replicarouter.settings.values import Section


@pytest.mark.parametrize(
    ("section", "values", "at"),
    [
        (AdminSettings, {"host": "192.0.2.1"}, ("host",)),
        (EjectSettings, {"max_seconds": 2}, ("max_seconds",)),
        (EjectSettings, {"base_seconds": 61}, ("max_seconds",)),
        (TlsSettings, {"cert": "a.pem"}, ("cert",)),
        (TlsSettings, {"key": "a.pem"}, ("key",)),
    ],
)
def test_conflict_names_the_field_to_change(
    section: type[Section], values: dict[str, Any], at: tuple[str, ...]
) -> None:
    with pytest.raises(ValidationError) as caught:
        section.model_validate(values)
    (problem,) = caught.value.errors()
    assert problem["type"] == "conflict"
    assert problem["ctx"]["at"] == at


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (AdminSettings, {"host": "192.0.2.1", "token": "t"}),
        (AdminSettings, {"host": "192.0.2.1", "port": 0}),
        (AdminSettings, {"host": "::1"}),
        (EjectSettings, {"base_seconds": 60, "max_seconds": 60}),
        (TlsSettings, {"cert": "a.pem", "key": "b.pem"}),
        (TlsSettings, {"replica_ca": "a.pem"}),
    ],
)
def test_values_that_go_together_are_accepted(section: type[Section], values: dict[str, Any]) -> None:
    assert section.model_validate(values).model_fields_set == values.keys()


def test_case_of_a_log_level_does_not_matter() -> None:
    assert LogSettings.model_validate({"level": "WARNING", "format": "Json"}).level == "warning"
