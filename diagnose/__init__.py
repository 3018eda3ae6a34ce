"""What it means: a window in, a verdict out. Pure but for alerts/."""
