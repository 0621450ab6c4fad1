"""OpenTelemetry traces of requests, where its own variables ask for them; else nothing of it is imported."""
