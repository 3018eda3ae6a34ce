"""Engines' log lines into readings: one file per engine for the forms, one for what a file of them says."""
