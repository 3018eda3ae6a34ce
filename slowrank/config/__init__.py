"""The service's configuration: one TOML file, the environment over it, frozen once it is read."""
