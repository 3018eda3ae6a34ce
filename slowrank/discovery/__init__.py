"""Which engines there are: configured, in files, from a server; nodes joined to engines by what their pages say."""
