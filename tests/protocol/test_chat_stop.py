"""Stop sequences, however the text is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicepipe.protocol.chat_stop import StopCutter

few = st.text("ab", max_size=12)


@given(st.lists(few, max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
def test_what_goes_on_is_all_that_stands_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    """The pieces that are given out make the text up to the first stop sequence, and nothing is given out too early."""
    cutter, whole = StopCutter(tuple(stops)), "".join(pieces)
    ends = [at for at in map(whole.find, stops) if at >= 0]
    expected = whole[: min(ends)] if ends else whole
    said = ""
    for piece in pieces:
        said += cutter.push(piece)
        assert expected.startswith(said)
        if cutter.found:
            break
    else:
        said += cutter.finish()
    assert (said, cutter.found) == (expected, bool(ends))
