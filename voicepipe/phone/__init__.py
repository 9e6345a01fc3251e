"""Phone calls: a carrier's media stream on one side, the events of a session's client on the other."""
