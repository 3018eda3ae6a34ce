"""What is happening: pages of an engine in, windows of canonical signals out."""
