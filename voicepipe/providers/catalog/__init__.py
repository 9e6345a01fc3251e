"""What is known of language model vendors, as data: `catalog.toml`, read and checked.

`load` gives the whole, `Catalog.provider` one vendor, `Catalog.model` what is known of one model. Nothing here
speaks to anybody, and nothing is imported that does.
"""

from voicepipe.providers.catalog.facts import Catalog, ModelFacts, ProviderFacts, Rule
from voicepipe.providers.catalog.reading import load

__all__ = ["Catalog", "ModelFacts", "ProviderFacts", "Rule", "load"]
