"""`slowrank dashboards` and `slowrank rules`: what Grafana and Prometheus read, made, compared with files, and sent to Grafana."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from collector.errors import ConfigError
from slowrank.exits import Exit
from slowrank.terminal import say

dashboards = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Dashboards for Grafana 9 to 13.")
rules = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Recording and alerting rules for Prometheus.")

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files are.")]
Runbooks = Annotated[
    str,
    typer.Option(
        "--runbooks", metavar="URL", help="Where runbooks (RULE.md) and docs/dashboards.md are published; alerts then have a runbook_url."
    ),
]


@dashboards.command("build")
def build_dashboards(folder: Folder) -> None:
    """Write one JSON file for each dashboard, for Grafana's provisioning or an import by hand."""
    from dashboards import build

    _build(build.page_files(), folder)


@dashboards.command("check")
def check_dashboards(folder: Folder) -> None:
    """Compare the files with what this version makes. Exit codes: 0 the same, 1 they differ, 2 usage."""
    from dashboards import build

    _check(build.page_files(), folder, ".json", "dashboards")


@dashboards.command("push")
def push_dashboards(
    url: Annotated[str, typer.Argument(metavar="URL", help="Grafana's address.")],
    token_file: Annotated[Path, typer.Option(metavar="FILE", help="Holds a service account's token (role Editor).")],
) -> None:
    """Send the dashboards to a Grafana, over those of an earlier version.

    Exit codes: 0 all taken, 2 usage or a refusal, 4 Grafana cannot be reached.
    """
    from dashboards import build
    from slowrank.grafana import push

    for uid, address in push(url, token_file, build.pages().values()):
        say(f"{uid}: {address}")


@rules.command("build")
def build_rules(folder: Folder, runbooks: Runbooks = "") -> None:
    """Write the rule file, for `rule_files` of Prometheus or for vmalert, Thanos and Mimir."""
    from dashboards import build

    _build(build.rule_files(_address(runbooks)), folder)


@rules.command("check")
def check_rules(folder: Folder, runbooks: Runbooks = "") -> None:
    """Compare the file with what this version makes. Exit codes: 0 the same, 1 they differ, 2 usage."""
    from dashboards import build

    _check(build.rule_files(_address(runbooks)), folder, ".yaml", "rules")


def _build(files: Mapping[str, str], folder: Path) -> None:
    from dashboards import build

    try:
        changed = build.write(files, folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); name a folder of your own") from error
    for path in changed:
        say(f"wrote {path}")
    say(f"{len(files) - len(changed)} of {len(files)} files were as they should be")


def _check(files: Mapping[str, str], folder: Path, suffix: str, command: str) -> None:
    from dashboards import build

    differ, left = build.drift(files, folder), build.strangers(files, folder, suffix)
    for name in differ:
        say(f"{folder / name} {'differs' if (folder / name).is_file() else 'is missing'}; run `slowrank {command} build {folder}`")
    for name in left:
        say(f"{folder / name} is not of this version; delete it if slowrank made it")
    if differ or left:
        raise typer.Exit(Exit.FINDING)
    say(f"{len(files)} files in {folder} are what this version makes")


def _address(runbooks: str) -> str:
    if runbooks and not runbooks.startswith(("http://", "https://")):
        raise ConfigError(f"--runbooks {runbooks!r}: is no address; give one that starts with http:// or https://")
    return runbooks
