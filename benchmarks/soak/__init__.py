"""A soak: one sidecar, one workload, faults that come and go."""
