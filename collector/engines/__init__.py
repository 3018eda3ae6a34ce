"""One file per engine: raw metric names to canonical signals, version differences as data."""
