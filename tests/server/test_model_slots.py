"""The slots of the local models: whatever comes in which order, all that were taken or reserved are free at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicepipe.server.workers.model_slots import ModelSlots

LIMIT, LIFE_MS = 3, 10


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["take", "reserve", "take_reserved", "take_over", "free", "wait"]), st.integers(0, 9)
        ),
        max_size=40,
    )
)
def test_taken_and_reserved_slots_are_always_released(steps: list[tuple[str, int]]) -> None:
    """No more than the limit are taken and reserved, but for sessions that are taken over."""
    slots, now_ms, n_taken, n_taken_over = ModelSlots(), 0, 0, 0
    reserved: dict[str, int] = {}
    for number, (step, which) in enumerate(steps):
        reserved = {name: until_ms for name, until_ms in reserved.items() if until_ms > now_ms}
        is_free = n_taken + len(reserved) < LIMIT
        if step == "take":
            assert slots.take(LIMIT, "", now_ms) == is_free
            n_taken += is_free
        elif step == "reserve":
            assert slots.reserve(LIMIT, f"r{number}", now_ms + LIFE_MS, now_ms) == is_free
            reserved |= {f"r{number}": now_ms + LIFE_MS} if is_free else {}
        elif step == "take_reserved" and reserved:
            name = sorted(reserved)[which % len(reserved)]
            assert slots.take(None, name, now_ms)
            del reserved[name]
            n_taken += 1
        elif step == "take_over":
            assert slots.take(None, "", now_ms)
            n_taken += 1
            n_taken_over += 1
        elif step == "free" and n_taken:
            slots.free()
            n_taken -= 1
        elif step == "wait":
            now_ms += which
        assert n_taken + len(reserved) <= LIMIT + n_taken_over
    for _ in range(n_taken):
        slots.free()
    now_ms += LIFE_MS
    assert [slots.take(LIMIT, "", now_ms) for _ in range(LIMIT + 1)] == [True] * LIMIT + [False]
