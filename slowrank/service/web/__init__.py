"""What the service shows: pages for people, an API for programs, /metrics for Prometheus. Reads only."""
