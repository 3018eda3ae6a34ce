"""Incidents that survive and alerts that arrive: the incident file, the outbox, and one file per kind of receiver (docs/alerts.md)."""
