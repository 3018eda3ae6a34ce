"""What people see: dashboards for Grafana and rules for Prometheus, made by code into dashboards/generated. docs/dashboards.md."""
