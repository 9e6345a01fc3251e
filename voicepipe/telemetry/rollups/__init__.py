"""Sums over many turns by minute, hour and day, and the figures that are computed from them."""
