"""Search the operator's documents: split them into passages, index these, and find those that match the user's
words."""
