"""The same windows out of Prometheus, or anything that speaks its HTTP API."""
