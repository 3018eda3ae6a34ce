"""What can go wrong while observing. Every message names the thing, the value seen and the next step."""

from __future__ import annotations


class SlowrankError(Exception):
    """Base of every error that slowrank raises on purpose."""


class ConfigError(SlowrankError):
    """A flag, file or argument that cannot mean anything; exit code 2."""


class SourceError(SlowrankError):
    """A page that was fetched but cannot be what it should be (HTML, truncated, wrong shape)."""


class CaptureError(SlowrankError):
    """A capture file that cannot be read."""
