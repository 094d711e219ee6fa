"""The settings: one tree, filled from flags, environment, YAML file and defaults."""

from replicarouter.errors import SettingsError
from replicarouter.settings.api_keys import NamedKey, named_keys
from replicarouter.settings.load import Loaded, load_settings
from replicarouter.settings.replica import ReplicaSettings
from replicarouter.settings.sections import (
    AdminSettings,
    AdmissionSettings,
    EjectSettings,
    HealthSettings,
    PriorityHeader,
    ScrapeSettings,
    TlsSettings,
)
from replicarouter.settings.tree import POLICY_NAMES, Settings

__all__ = [
    "POLICY_NAMES",
    "AdminSettings",
    "AdmissionSettings",
    "EjectSettings",
    "HealthSettings",
    "Loaded",
    "NamedKey",
    "PriorityHeader",
    "ReplicaSettings",
    "ScrapeSettings",
    "Settings",
    "SettingsError",
    "TlsSettings",
    "load_settings",
    "named_keys",
]
