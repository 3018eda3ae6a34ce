"""The command line: which commands there are, in the order of use, and what becomes of their errors."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from collector.errors import SlowrankError
from slowrank.commands.alert import alert
from slowrank.commands.demo import demo
from slowrank.commands.diagnose import diagnose
from slowrank.commands.doctor import doctor
from slowrank.commands.explain import explain
from slowrank.commands.generated import dashboards, rules
from slowrank.commands.incidents import incidents
from slowrank.commands.probe import probe
from slowrank.commands.record import record
from slowrank.commands.serve import config, serve
from slowrank.commands.workload import workload
from slowrank.exits import Exit, of_error
from slowrank.terminal import tell

HELP = """Says which data-parallel rank makes an LLM inference cluster slow, why, what it costs and what to do.

It reads the load and metrics pages that the engine already serves; nothing is installed in the engine and nothing is changed. Only
`slowrank probe` sends requests of its own, and it asks first.
"""

EXAMPLES = (
    ("slowrank demo", "see slow ranks found, without a GPU or a cluster"),
    ("slowrank doctor http://host:30000", "does this engine say enough, which flag is missing?"),
    ("slowrank diagnose http://host:30000", "is a rank slow, and why?"),
    ("slowrank diagnose node0:30000,node1:30000", "one engine on two nodes"),
    ("slowrank probe host:30000", "whose card, where metrics cannot tell: gives the engine work, asks first"),
    ("slowrank record host:30000 -o slow.slowrank", "what to attach to a bug report"),
    ("slowrank diagnose slow.slowrank", "the same answer, later and elsewhere"),
    ("slowrank alert test --alertmanager URL", "do alerts arrive?"),
    ("slowrank serve http://host:30000", "watch it: pages, alerts, /metrics on 127.0.0.1:9469"),
    ("slowrank rules build FOLDER", "rules for Prometheus; dashboards build FOLDER for Grafana"),
    ("slowrank explain context_length_skew", "what that verdict means and what to do"),
)


class FrontDoor(TyperGroup):
    """Help that teaches in the order of use; errors that were foreseen as one line on stderr and the documented exit code."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the base class passes it
        """The commands by what one wants, then examples to copy."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            groups.setdefault(str(getattr(command, "rich_help_panel", "")), []).append((name, command.get_short_help_str(80)))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section("Examples"):
            formatter.write_dl(EXAMPLES, col_max=48)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; never show a traceback for an error that was foreseen."""
        try:
            return super().invoke(ctx)
        except SlowrankError as error:
            tell(str(error))
            raise typer.Exit(of_error(error)) from None
        except KeyboardInterrupt:
            tell("interrupted")
            raise typer.Exit(Exit.INTERRUPTED) from None


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"slowrank {version('slowrank')}")
        raise typer.Exit


app = typer.Typer(
    cls=FrontDoor,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback(help=HELP)
def _front(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    del version


LOOK, WATCH, KEEP, LEARN = "Find the slow rank", "Watch engines", "Keep and understand", "Try it without a cluster"

app.command(rich_help_panel=LOOK)(diagnose)
app.command(rich_help_panel=LOOK)(doctor)
app.command(rich_help_panel=LOOK)(probe)
app.command(rich_help_panel=WATCH)(serve)
app.command(rich_help_panel=WATCH)(config)
app.command(rich_help_panel=WATCH)(incidents)
app.add_typer(alert, name="alert", rich_help_panel=WATCH)
app.command(rich_help_panel=KEEP)(record)
app.command(rich_help_panel=KEEP)(explain)
app.add_typer(dashboards, name="dashboards", rich_help_panel=KEEP)
app.add_typer(rules, name="rules", rich_help_panel=KEEP)
app.command(rich_help_panel=LEARN)(demo)
app.add_typer(workload, name="workload", rich_help_panel=LEARN)
