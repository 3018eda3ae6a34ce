"""Evidence from the machines that an engine runs on: its cards (DCGM, NVML) and its processes (/proc). One file per source."""
