"""The settings: one TOML file and the environment become frozen values, or a refusal that names the key.

`load` reads them, `Settings` holds them, `table` shows them. An option lives as a field of the frozen
dataclass beside its owner (`turn.settings` owns the budget and the deadlines); what belongs to no room
below lives in `settings` here.
"""

from voicepipe.config.load import load
from voicepipe.config.settings import AgentSettings, CatalogSettings, ProviderEntry, RecordsSettings, Settings
from voicepipe.config.table import Row, effective, markdown
from voicepipe.server.options import ServerSettings

__all__ = [
    "AgentSettings",
    "CatalogSettings",
    "ProviderEntry",
    "RecordsSettings",
    "Row",
    "ServerSettings",
    "Settings",
    "effective",
    "load",
    "markdown",
]
