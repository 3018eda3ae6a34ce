"""What people see: dashboards and rules for Prometheus and Grafana, generated as code. None exist yet."""
