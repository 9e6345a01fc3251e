"""Change fields of a frozen value, of either kind: a msgspec struct or a dataclass."""

from __future__ import annotations

import dataclasses
from functools import singledispatch
from typing import TYPE_CHECKING

from msgspec import Struct, structs

if TYPE_CHECKING:
    # mypy checks its arguments, also for structs. Those of `structs.replace` are `Any` to it.
    from dataclasses import replace as replace
else:
    replace = singledispatch(dataclasses.replace)
    replace.register(Struct, structs.replace)
