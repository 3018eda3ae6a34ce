"""One diagnosis rule per file. A rule is a question asked of a Case; the file's name is its id, its runbook lies beside it.

`load()` finds them; nothing happens on import. Adding a rule edits no shared file (docs/adding-a-rule.md).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.model import Class, Outcome, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagnose.case import Case


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit, its unit, and the measurement or arithmetic that it comes from."""

    value: float
    unit: str
    why: str


class Limits:
    """A rule's thresholds by name, as plain numbers: `limit.share`."""

    def __init__(self, thresholds: Mapping[str, Threshold], overrides: Mapping[str, float] | None = None) -> None:
        self._values = {name: t.value for name, t in thresholds.items()} | dict(overrides or {})

    def __getattr__(self, name: str) -> float:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no threshold {name!r}; there are {sorted(self._values)}") from None


Judge = Callable[["Case", Limits], Outcome]


@dataclass(frozen=True, slots=True)
class Rule:
    """A diagnosis rule with everything that is said of it. Without one of the signals in `needs` it answers NoData
    or with less confidence."""

    id: str
    klass: Class
    severity: Severity
    remedy: str
    needs: tuple[str, ...]
    judge: Judge
    doc: str
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: MappingProxyType({}))
    limits: Limits = field(init=False, repr=False, compare=False)  # `thresholds` as numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.thresholds))

    @property
    def title(self) -> str:
        """The first line of the rule's docstring: what it says when it fires."""
        return self.doc.strip().splitlines()[0]

    @property
    def runbook(self) -> str:
        """The runbook's text (Meaning, Impact, Diagnosis, Mitigation), as shipped beside the rule."""
        return (resources.files(__name__) / f"{self.id}.md").read_text(encoding="utf-8")

    def ask(self, case: Case) -> Outcome:
        """This rule's answer for a case, with its thresholds."""
        return self.judge(case, self.limits)


def rule(*, klass: Class, severity: Severity, remedy: str, needs: tuple[str, ...], **thresholds: Threshold) -> Callable[[Judge], Rule]:
    """Make a Rule of the one pure function of a rule file; id and documentation are the module's."""

    def make(judge: Judge) -> Rule:
        module = inspect.getmodule(judge)
        doc = inspect.cleandoc((module.__doc__ if module else None) or "")
        return Rule(judge.__name__, klass, severity, remedy, needs, judge, doc, MappingProxyType(thresholds))

    return make


@cache
def load() -> Mapping[str, Rule]:
    """All rules by id, in alphabetical order. Raises ValueError when a file does not hold the rule that its name says."""
    found: dict[str, Rule] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        candidate = getattr(module, module_info.name, None)
        if not isinstance(candidate, Rule):
            raise ValueError(f"diagnose/rules/{module_info.name}.py defines no rule named {module_info.name}")
        found[candidate.id] = candidate
    return MappingProxyType(found)
