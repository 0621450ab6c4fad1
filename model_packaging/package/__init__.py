"""A package: what lies in `/opt/ml/model` of an endpoint, put together, checked, written and uploaded."""
