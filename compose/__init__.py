"""An endpoint with S3, Prometheus and a Grafana dashboard, and the check of the dashboard: `python -m compose URL`."""
