"""Recordings of calls: both sides on one time line, in one file of two channels."""
