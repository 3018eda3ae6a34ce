"""One file per command of the front door. Each imports what it needs when it runs, so that --help answers at once."""
