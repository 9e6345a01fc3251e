"""Change the fields of frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Struct

from voicepipe.values import replace


class Point(Struct, frozen=True):
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    x: int
    y: int = 0


@pytest.mark.parametrize("kind", [Point, Place])
def test_fields_of_both_kinds_are_replaced(kind: Any) -> None:
    """In a copy. A field that there is not is refused."""
    value = kind(1, y=2)
    assert replace(value, x=3) == kind(3, 2)
    assert value == kind(1, 2)
    with pytest.raises(TypeError, match="z"):
        replace(value, z=4)
