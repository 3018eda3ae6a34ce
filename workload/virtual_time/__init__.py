"""A cluster in virtual time: the same traffic, router, schedulers and cards on an event clock, in one process.

What is real elsewhere is drawn here: how long a host needs for its part of a step. Everything else is the cluster's own code, so that
rank-days are made in seconds, the same ones for the same seed. `simulate` runs one, `Recording` writes its pages as a capture file.
"""
