"""Evals: a scripted user holds conversations with an agent, and expectations judge what the agent did."""
