"""A runbook's Markdown as blocks of a page: headings, paragraphs, lists, `code` and *emphasis*. Any other mark stays text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_MARKED = re.compile(r"(?P<heading>#{1,6})\s+|(?P<bullet>[-*])\s+|(?P<number>\d+\.)\s+")

_INLINE = re.compile(r"(`[^`]+`|\*[^*\s](?:[^*]*[^*\s])?\*)")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text: plain, code or emphasis."""

    text: str
    kind: str = "plain"


@dataclass(slots=True)
class Block:
    """A heading, a paragraph (one item), or a list."""

    kind: str  # heading, paragraph, bullets, numbers
    items: list[list[Span]] = field(default_factory=list)


def blocks(markdown: str) -> list[Block]:
    """The blocks of a runbook, without its title, which repeats the rule's name."""
    out: list[Block] = []
    for kind, text in _paragraphs(markdown.splitlines()):
        if kind == "title":
            continue
        if kind in {"bullets", "numbers"} and out and out[-1].kind == kind:
            out[-1].items.append(spans(text))
        else:
            out.append(Block(kind, [spans(text)]))
    return out


def spans(text: str) -> list[Span]:
    """Text split at its code and emphasis marks; a mark without a partner stays as it is."""
    kinds = {"`": "code", "*": "emphasis"}
    parts = _INLINE.split(text)  # plain and marked text by turns
    return [Span(part[1:-1], kinds[part[0]]) if k % 2 else Span(part) for k, part in enumerate(parts) if part]


def _paragraphs(lines: Iterable[str]) -> list[tuple[str, str]]:
    """(kind, text) with wrapped lines joined; a list's items one by one."""
    out: list[tuple[str, str]] = []
    fresh = True  # the next line begins something new
    for line in lines:
        text = line.strip()
        mark = _MARKED.match(text)
        if not text:
            fresh = True
        elif mark and mark["heading"]:
            out.append(("title" if len(mark["heading"]) == 1 else "heading", text[mark.end() :]))
            fresh = True
        elif mark:
            out.append(("bullets" if mark["bullet"] else "numbers", text[mark.end() :]))
            fresh = False
        elif fresh:
            out.append(("paragraph", text))
            fresh = False
        else:
            out[-1] = (out[-1][0], f"{out[-1][1]} {text}")
    return out
