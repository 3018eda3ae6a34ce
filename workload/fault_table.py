"""The tables of faults, harmless events and scenarios in docs/workload.md, from the registry: `python -m workload.fault_table FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from workload import faults, harmless
from workload.fault import Fault
from workload.scenario import bundled, load

_BEGIN, _END = "<!-- {}: generated, python -m workload.fault_table -->", "<!-- end of {} -->"


def filled(text: str) -> str:
    """The document with its generated parts renewed. Raises ValueError when one of their marks is missing."""
    parts = {
        "faults": _table(sorted(faults.load().values(), key=lambda f: (f.klass, f.id))),
        "harmless events": _table(harmless.load().values()),
        "scenarios": _scenarios(),
        "pictures": _pictures(),
    }
    for name, part in parts.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        if begin not in text or end not in text:
            raise ValueError(f"{begin} or {end} is missing; put both back where the {name} belong")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{part}\n\n{end}{rest.partition(end)[2]}"
    return text


def _table(of: Iterable[Fault]) -> str:
    rows = ["| id | class | what it really does | severity | where | device |", "|---|---|---|---|---|---|"]
    for fault in of:
        where = "whole group" if fault.whole_group else "one rank" if len(fault.ranks(0, 8)) == 1 else "half of the ranks"
        ramp = "; may rise" if fault.ramps else ""
        rows.append(f"| `{fault.id}` | {fault.klass} | {fault.about} | {fault.scale}{ramp} | {where} | {', '.join(fault.devices)} |")
    return "\n".join(rows)


def _scenarios() -> str:
    own = faults.load()
    rows = ["| scenario | about |", "|---|---|"]
    rows += [f"| `{name}` | {load(name).about} |" for name in bundled() if name not in own]
    return "\n".join(rows)


def _pictures() -> str:
    return "\n\n".join(
        f"![What {name} does to step time, waits, pairs and requests](workload/{name}.svg)" for name in sorted(faults.load())
    )


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
