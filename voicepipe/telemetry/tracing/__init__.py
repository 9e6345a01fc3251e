"""TODO describe."""
