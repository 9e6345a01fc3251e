"""The endpoints for integrations and operators: turns, statistics, tokens, webhooks, metrics, status and pages."""
