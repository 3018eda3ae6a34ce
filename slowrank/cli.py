"""The console script. It checks that the rooms are ours before it imports any, then hands over to slowrank.app."""

from __future__ import annotations

import sys
import traceback

from slowrank.selfcheck import stranger


def main() -> None:
    """Run slowrank. A defect of slowrank itself exits with 70 and a traceback, so that it never reads as a finding (1)."""
    problem = stranger()
    if problem:
        sys.stderr.write(f"slowrank: {problem}\n")
        sys.exit(2)  # Exit.USAGE, which cannot be imported yet
    from slowrank.app import app
    from slowrank.exits import Exit
    from slowrank.terminal import never_fail_to_print

    never_fail_to_print()
    try:
        app(prog_name="slowrank")
    except Exception:  # noqa: BLE001 - the rim of the process: everything foreseen was handled in slowrank.app
        traceback.print_exc()
        sys.exit(Exit.DEFECT)
