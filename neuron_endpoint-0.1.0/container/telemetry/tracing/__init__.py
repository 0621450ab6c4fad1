"""OpenTelemetry traces: a span for each request, with its stages in the engine."""
