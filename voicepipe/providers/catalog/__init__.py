"""Facts about LLM vendors, as data: `catalog.toml` here and in the vendors' own packages, read and checked.

`load` returns the whole catalog, `Catalog.provider` one vendor, `Catalog.model` the facts of one model. This package
makes no connections and imports no code that does.
"""

from voicepipe.providers.catalog.facts import Catalog, ModelFacts, ProviderFacts, RequestRule
from voicepipe.providers.catalog.load import load

__all__ = ["Catalog", "ModelFacts", "ProviderFacts", "RequestRule", "load"]
