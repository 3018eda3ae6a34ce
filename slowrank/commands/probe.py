"""`slowrank probe`: give each rank the same prompt, and say whose card is slow. The one command that gives an engine work."""

from __future__ import annotations

import json
import random
from typing import Annotated

import typer

from slowrank.commands.options import KEY, Format
from slowrank.exits import Exit
from slowrank.terminal import bar, say, tell, terminate_politely, width

TOKENS = 8192
"""Eight chunks of the 1,024 tokens that SGLang computes a step with 8 ranks: the step under way when a prompt comes, which is nobody's
doing, is then a tenth of the time."""

SHORTEST, LONGEST = 256, 1_000_000


def probe(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="URL or host:port of the engine's API server.")],
    tokens: Annotated[
        int,
        typer.Option(min=SHORTEST, max=LONGEST, help="Length of each prompt. Below some chunks of prefill a slow card hardly shows."),
    ] = TOKENS,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")] = False,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for programs.")] = Format.TEXT,
    api_key_env: Annotated[str | None, KEY] = None,
) -> None:
    """Find a slow card inside a lockstep by giving each rank the same prompt in turn. Never runs by itself.

    Ranks of a lockstep all step equally long, so no engine metric names a slow card. A prompt that is pinned to one rank (SGLang's
    routed_dp_rank, vLLM's X-data-parallel-rank) makes that rank's card the one with work: what differs between ranks is their cards' speed.
    It finds slowness in proportion to work: a throttled card, slow memory. A fixed delay in every step slows all prompts alike and stays
    unnamed; slowrank diagnose looks for that.

    It gives the engine work: one request at a time, a pause as long after it, and nothing while a rank has a queue. What that adds up to is
    shown first, and you are asked. Ctrl-C takes the request under way back.

    Exit codes: 0 no rank is slower, 1 one is, 2 usage or configuration, 3 not to be told now, 4 unreachable.
    """
    from collector.errors import ConfigError
    from diagnose import pinned
    from slowrank import probing
    from slowrank.probe_report import announce, render, to_json
    from slowrank.targets import parse, split

    captures, addresses = split([target])
    if captures:
        raise ConfigError(f"{target} is a capture; a probe needs the engine itself")
    (where,) = parse(addresses, api_key_env)
    with terminate_politely(), probing.connect(where) as client:
        engine = probing.Engine(client, where.engine, random.SystemRandom())
        tell(announce(where.engine, engine.ranks, tokens))
        if not yes and not typer.confirm("Begin?", err=True):
            tell("nothing was sent")
            raise typer.Exit(Exit.INSUFFICIENT)
        done = 0
        with bar(f"probing {where.engine}", pinned.ROUNDS * len(engine.ranks)) as shown:

            def on_probe(_probe: probing.Probe) -> None:
                nonlocal done
                done += 1
                shown.at(done)

            try:
                verdict, _ = probing.run(engine, tokens, on_probe)
            except probing.AbstainedError as error:
                tell(str(error))
                raise typer.Exit(Exit.INSUFFICIENT) from None
    if form is Format.JSON:
        say(json.dumps(to_json(where.engine, tokens, verdict), indent=2, allow_nan=False))
    else:
        say(render(where.engine, tokens, verdict, width()).rstrip("\n"))
    raise typer.Exit({pinned.Outcome.SLOW: Exit.FINDING, pinned.Outcome.LEVEL: Exit.HEALTHY}.get(verdict.outcome, Exit.INSUFFICIENT))
