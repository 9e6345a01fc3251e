"""The settings: read 1 TOML file and the environment into frozen values, or raise an error that names the key.

`load` reads the settings, `Settings` holds them, `docs_table` shows them. An option is a field of the frozen dataclass
beside its owner (`turn.settings` owns the budget and the deadlines). Options without such an owner are in `agents`
and `settings` here.
"""

from voicepipe.config.agents import AgentSettings
from voicepipe.config.docs_table import OptionRow, effective, markdown
from voicepipe.config.load import load
from voicepipe.config.settings import CatalogSettings, ProviderEntry, RecordsSettings, Settings
from voicepipe.server.options import ServerSettings

__all__ = [
    "AgentSettings",
    "CatalogSettings",
    "OptionRow",
    "ProviderEntry",
    "RecordsSettings",
    "ServerSettings",
    "Settings",
    "effective",
    "load",
    "markdown",
]
