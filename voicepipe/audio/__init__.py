"""Audio: samples, codecs, streaming resampling, voice activity detection and audio files.

Everything here is pure and synchronous. Time comes in as `now_ms`. Audio time is counted in samples and becomes
milliseconds at the edge. Nothing is imported here: import `voicepipe.audio.vad_segmenter` and the other modules by
name.
"""
