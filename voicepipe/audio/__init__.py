"""Sound: samples and codecs, streaming resampling, who speaks and when, files.

Everything here is pure and synchronous. Time comes in as `now_ms`; audio time is counted in samples and
becomes milliseconds at the edge. Nothing is imported here: take `voicepipe.audio.ear` and its neighbours by name.
"""
