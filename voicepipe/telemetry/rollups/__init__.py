"""Sums over many turns by minute, quarter of an hour, hour and day, and the figures that are computed from them."""
