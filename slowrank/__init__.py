"""The front door: command line, configuration, demo. The only room that knows all others."""
