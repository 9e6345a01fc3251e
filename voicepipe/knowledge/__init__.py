"""Documents of the operator: split into passages, indexed, and searched for what the user speaks about."""
