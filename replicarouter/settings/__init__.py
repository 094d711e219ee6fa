"""The settings: one tree, filled from flags, environment, YAML file and defaults."""

from replicarouter.errors import SettingsError
from replicarouter.settings.api_keys import NamedKey, named_keys
from replicarouter.settings.load import Loaded, load_settings
from replicarouter.settings.replica import ReplicaSettings
from replicarouter.settings.sections import (
    POLICY_NAMES,
    AdminSettings,
    AdmissionSettings,
    ConnectorSettings,
    EjectSettings,
    HealthSettings,
    PolicyName,
    PolicyOptions,
    PoolSettings,
    PriorityHeader,
    ScrapeSettings,
    TlsSettings,
    TracingSettings,
)
from replicarouter.settings.tree import Settings

__all__ = [
    "POLICY_NAMES",
    "AdminSettings",
    "AdmissionSettings",
    "ConnectorSettings",
    "EjectSettings",
    "HealthSettings",
    "Loaded",
    "NamedKey",
    "PolicyName",
    "PolicyOptions",
    "PoolSettings",
    "PriorityHeader",
    "ReplicaSettings",
    "ScrapeSettings",
    "Settings",
    "SettingsError",
    "TlsSettings",
    "TracingSettings",
    "load_settings",
    "named_keys",
]
