"""What can be configured, with its defaults and why they are what they are. Frozen; secrets are named here, never held.

Every key's `description` is its line in docs/sidecar.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from collector.scrape import MAX_BYTES
from slowrank.durations import parse_duration

Loudness = Literal["page", "ticket", "note"]
Blame = Literal["single-point", "load", "structural", "outside", "insufficient-evidence"]


def _seconds(value: object) -> object:
    """A duration as people write it; a bare number is refused, as nobody can tell what it counts."""
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f"{value!r} is no duration; write it as text, for example '10s'")


Seconds = Annotated[float, BeforeValidator(_seconds)]
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=64)]
Labels = dict[LabelName, Annotated[str, Field(max_length=256)]]


class Part(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False)


class Access(Part):
    """How servers are reached."""

    token_env: str | None = Field(default=None, description="Environment variable that holds the bearer token of these servers.")
    token_file: Path | None = Field(default=None, description="File whose first line is the bearer token; read again on reload.")
    ca_file: Path | None = Field(default=None, description="Certificates (PEM) to trust in place of the system's.")
    cert_file: Path | None = Field(default=None, description="Our certificate (PEM), where servers ask for one.")
    key_file: Path | None = Field(default=None, description="Its key, if it is not in the same file.")


class EngineTable(Access):
    """One engine that is always there."""

    nodes: tuple[str, ...] = Field(min_length=1, description="Base URLs of the engine's nodes, node 0 first.")
    name: str | None = Field(
        default=None, min_length=1, max_length=200, description="Name in outputs and alerts; the nodes, joined by a comma, if not given."
    )
    labels: Labels = Field(default_factory=dict, description="Labels that go with the engine to every page and series.")
    timeout: Seconds | None = Field(default=None, description="Limit of one request, in place of scrape.timeout.")
    hardware: tuple[str, ...] = Field(default=(), description="dcgm-exporter pages of its nodes: host:9400, or the full URL.")
    procfs: bool = Field(default=False, description="Read this machine's /proc of its rank processes (the engine runs on it).")
    nvml: bool = Field(default=False, description="Ask this machine's NVIDIA driver for its cards (nvidia-ml-py must be there).")
    gpus: str | None = Field(default=None, description="Which cards are whose, where that does not show: 0=0,1=1.")
    clock: Literal["auto", "lockstep", "independent"] = Field(default="auto", description="What vLLM ranks share, if pages do not say.")


class FilesTable(Access):
    """Targets in files, as Prometheus' file_sd_configs."""

    paths: tuple[str, ...] = Field(min_length=1, description="Files or patterns (*.json, *.yml), relative to this file's folder.")
    labels: Labels = Field(default_factory=dict, description="Labels for all of them; the files' own win.")


class HttpTable(Access):
    """Targets from a server, as Prometheus' http_sd_configs."""

    url: str = Field(description="Address that answers with the list in JSON.")
    every: Seconds = Field(default=60.0, description="Time between two questions; Prometheus' own default.")
    labels: Labels = Field(default_factory=dict, description="Labels for all of them; the server's own win.")
    target_token_env: str | None = Field(default=None, description="As token_env, but of the targets: token_env is the list server's own.")
    target_token_file: Path | None = Field(default=None, description="As token_file, but of the targets.")


class Discovery(Part):
    """Where engines are listed that come and go."""

    files: tuple[FilesTable, ...] = ()
    http: tuple[HttpTable, ...] = ()


class Service(Part):
    """Our own server and state."""

    listen: str = Field(default="127.0.0.1:9469", description="Address and port of the pages, the API and /metrics.")
    token_env: str | None = Field(
        default=None, description="Environment variable with the token that readers show; a must beyond loopback."
    )
    token_file: Path | None = Field(default=None, description="The same from a file's first line.")
    external_url: str = Field(default="", description="Where people reach these pages; links in alerts start with it.")
    incidents: Path = Field(default=Path("slowrank.db"), description="The incident file (SQLite); its folder must be writable.")
    shard: str = Field(default="0/1", description="i/n: watch the engines of shard i (from 0) of n alone; as --shard.")
    log_format: Literal["auto", "json", "console"] = Field(default="auto", description="auto: console on a terminal, JSON elsewhere.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is logged at least.")


class Scrape(Part):
    """How often engines are read. /metrics is slowed down where rendering it costs the engine more than `budget`."""

    loads: Seconds = Field(default=1.0, description="Time between two /v1/loads pages: for the engine a read of shared memory.")
    metrics: Seconds = Field(default=5.0, description="Time between two /metrics pages: 85 ms of the engine's CPU for 1,700 lines.")
    metrics_suspected: Seconds = Field(default=2.0, description="The same while something is suspected.")
    budget: float = Field(
        default=0.005, gt=0, le=1, description="Share of a node's core that rendering /metrics may cost; x4 while suspected."
    )
    timeout: Seconds = Field(default=5.0, description="Limit of one request.")
    max_page_bytes: int = Field(
        default=MAX_BYTES, ge=65_536, le=1 << 30, description="Longest page that is read; each node may hold so much memory for a moment."
    )


class Diagnosis(Part):
    """How often engines are judged, and against what."""

    every: Seconds = Field(default=10.0, description="Time between two verdicts on an engine.")
    window: Seconds = Field(default=30.0, description="How much a verdict looks at; more where pages are slowed down.")
    past_age: Seconds = Field(default=600.0, description="Least age of the healthy window that an engine is compared with.")


class Receiver(Part):
    """What all receivers of alerts have."""

    name: str | None = Field(default=None, min_length=1, max_length=80, description="Name in outputs; its kind, numbered, if not given.")
    severities: tuple[Loudness, ...] = Field(default=(), description="Only these; empty: all.")
    classes: tuple[Blame, ...] = Field(default=(), description="Only these; empty: all.")


class AlertmanagerTable(Receiver):
    url: str = Field(description="Base address; each Alertmanager of a cluster is a receiver.")


class WebhookTable(Receiver):
    url: str | None = Field(default=None, description="Address; if it holds a key, use url_env or url_file.")
    url_env: str | None = Field(default=None, description="Environment variable that holds the address.")
    url_file: Path | None = Field(default=None, description="File whose first line is the address.")
    key_env: str | None = Field(default=None, description="Environment variable with the whsec_ key that signs.")
    key_file: Path | None = Field(default=None, description="The same from a file.")


class SlackTable(Receiver):
    url_env: str | None = Field(default=None, description="Environment variable with the incoming webhook's address, its key.")
    url_file: Path | None = Field(default=None, description="The same from a file.")


class PagerDutyTable(Receiver):
    key_env: str | None = Field(default=None, description="Environment variable with the routing key of an Events v2 integration.")
    key_file: Path | None = Field(default=None, description="The same from a file.")
    url: str | None = Field(default=None, description="Another region's events address.")


class Alerts(Part):
    """Who is told of incidents."""

    alertmanager: tuple[AlertmanagerTable, ...] = ()
    webhook: tuple[WebhookTable, ...] = ()
    slack: tuple[SlackTable, ...] = ()
    pagerduty: tuple[PagerDutyTable, ...] = ()


class Config(Part):
    """All of it."""

    service: Service = Service()
    scrape: Scrape = Scrape()
    diagnosis: Diagnosis = Diagnosis()
    engines: tuple[EngineTable, ...] = ()
    discovery: Discovery = Discovery()
    alerts: Alerts = Alerts()
