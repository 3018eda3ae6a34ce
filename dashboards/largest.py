"""Which few of many series a chart shows: the same ones all along, by their mean over the whole time that is shown. Pure text.

A plain `topk` chooses anew at each point: ten times as many lines, all of them broken.
"""

from __future__ import annotations


def largest(count: int, expression: str, by: str) -> str:
    """The `count` largest of the expression's series, told apart by the labels `by`. `@ end()` needs Prometheus >= 2.33."""
    return f"({expression}) and on ({by}) topk({count}, avg_over_time(({expression})[$__range:$__interval] @ end()))"
