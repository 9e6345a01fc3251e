"""Calls over WebRTC: the same sessions, with audio over RTP and events over a data channel.

Only `peer.py` needs aiortc, of the extra `webrtc`. It is imported with the first call.
"""
