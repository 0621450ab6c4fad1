"""The definition of a deployment: limits, role, environment, and the parameters of every AWS call."""
