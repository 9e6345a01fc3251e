"""Spans: the port, a record as spans, and the only import of the OpenTelemetry SDK."""
