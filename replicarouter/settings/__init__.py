"""The settings: one tree, filled from flags, environment, YAML file and defaults."""

from replicarouter.errors import SettingsError
from replicarouter.settings.load import Loaded, load_settings
from replicarouter.settings.replica import ReplicaSettings
from replicarouter.settings.sections import AdminSettings, HealthSettings, ScrapeSettings
from replicarouter.settings.tree import POLICY_NAMES, Settings

__all__ = [
    "POLICY_NAMES",
    "AdminSettings",
    "HealthSettings",
    "Loaded",
    "ReplicaSettings",
    "ScrapeSettings",
    "Settings",
    "SettingsError",
    "load_settings",
]
