"""vLLM 0.32's `/metrics` as its front end keeps it: what is counted when a step's output comes, a first token, a request's end.

With one API server prometheus_client runs in one process, and the page shows `_created` and the process's own series. With more it
runs in multiprocess mode, with PROMETHEUS_MULTIPROC_DIR in the environment before its first import, and shows neither.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from workload.face.vllm_specs import FAMILIES, cache_config

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

_HELP = "."  # the HELP texts are their authors' prose and carry nothing for a scraper


@dataclass(frozen=True, slots=True)
class Life:
    """A finished request: tokens and how often it was preempted, and its times in seconds (`e2e` by the front end's clock)."""

    prompt: int
    cached: int
    generated: int
    preemptions: int
    e2e: float
    queue: float
    prefill: float
    decode: float


class VllmMetrics:
    """The families of one front end, for engines 0 to `engines` - 1. `multiprocess`: as several API servers show them."""

    def __init__(self, *, model_name: str, engines: int, kv_tokens: int, max_model_len: int, multiprocess: bool) -> None:
        # imported here: whether PROMETHEUS_MULTIPROC_DIR is in the environment decides once, at the first import
        from prometheus_client import CollectorRegistry, values

        if multiprocess == (values.ValueClass is values.MutexValue):
            raise RuntimeError(
                f"prometheus_client was imported {'without' if multiprocess else 'with'} PROMETHEUS_MULTIPROC_DIR, and the page of "
                f"{'several API servers' if multiprocess else 'one API server'} needs it the other way"
            )
        self._multiprocess = multiprocess
        self._model = model_name
        self._own = CollectorRegistry()  # of the families themselves; a multiprocess page is read from the files
        self._buckets = {family.name: family.buckets for family in FAMILIES}
        self._children: dict[tuple[str, ...], object] = {}
        self._build(engines)
        self._info(engines, cache_config(kv_tokens, max_model_len))
        for engine in range(engines):
            # each one is set: a multiprocess page shows no gauge that nobody has written
            self._gauge("engine_sleep_state", engine, "awake").set(1)
            self._gauge("engine_sleep_state", engine, "weights_offloaded").set(0)
            self._gauge("engine_sleep_state", engine, "discard_all").set(0)

    def page(self) -> bytes:
        """The exposition, in text format 0.0.4."""
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if self._multiprocess:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        process = CollectorRegistry()
        GCCollector(process)
        PlatformCollector(process)
        ProcessCollector(registry=process)
        return generate_latest(process) + generate_latest(self._own)

    def scheduler(self, engine: int, *, running: int, waiting: int, kv_usage: float, queries: int, hits: int) -> None:
        """The scheduler's numbers, which come with a step's output and at no other time."""
        self._gauge("num_requests_running", engine).set(running)
        self._gauge("num_requests_waiting", engine).set(waiting)
        self._gauge("num_requests_waiting_by_reason", engine, "capacity").set(waiting)
        self._gauge("num_requests_waiting_by_reason", engine, "deferred").set(0)  # what defers a request is not played
        self._gauge("kv_cache_usage_perc", engine).set(kv_usage)
        self._counter("prefix_cache_queries", engine).inc(queries)
        self._counter("prefix_cache_hits", engine).inc(hits)

    def iteration(self, engine: int, *, computed: int, generated: int) -> None:
        """One step's outputs as one API server saw them: prompt tokens of requests with their first token, and tokens generated."""
        self._observe("iteration_tokens_total", engine, computed + generated)
        self._counter("generation_tokens", engine).inc(generated)

    def first_token(self, engine: int, *, prompt: int, cached: int, ttft: float) -> None:
        """A request's first output: only now its prompt is counted, whole."""
        self._counter("prompt_tokens", engine).inc(prompt)
        self._counter("prompt_tokens_by_source", engine, "local_compute").inc(prompt - cached)
        self._counter("prompt_tokens_by_source", engine, "local_cache_hit").inc(cached)
        self._counter("prompt_tokens_cached", engine).inc(cached)
        self._counter("prompt_tokens_cached_by_source", engine, "device").inc(cached)
        self._observe("time_to_first_token_seconds", engine, ttft)

    def gaps(self, engine: int, seconds: float, requests: int) -> None:
        """`requests` got their next output `seconds` after their last one."""
        self._observe("inter_token_latency_seconds", engine, seconds, requests)

    def preempted(self, engine: int, times: int) -> None:
        self._counter("num_preemptions", engine).inc(times)

    def aborted(self, engine: int) -> None:
        """A client has gone; its request leaves nothing but this count."""
        self._counter("request_success", engine, "abort").inc()

    def finished(self, engine: int, life: Life) -> None:
        """A request has all its tokens, as many as it asked for."""
        self._counter("request_success", engine, "length").inc()
        later = life.generated - 1
        for name, value in (
            ("request_prompt_tokens", life.prompt),
            ("request_generation_tokens", life.generated),
            ("request_max_num_generation_tokens", life.generated),
            ("request_params_n", 1),
            ("request_params_max_tokens", life.generated),
            ("request_prefill_kv_computed_tokens", life.prompt - life.cached),
            ("request_num_preemptions", life.preemptions),
            ("e2e_request_latency_seconds", life.e2e),
            ("request_queue_time_seconds", life.queue),
            ("request_prefill_time_seconds", life.prefill),
            ("request_decode_time_seconds", life.decode),
            ("request_inference_time_seconds", life.prefill + life.decode),
            ("request_time_per_output_token_seconds", life.decode / later if later else 0.0),
        ):
            self._observe(name, engine, value)

    def _build(self, engines: int) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        for family in FAMILIES:
            name = f"vllm:{family.name}"
            own = ("engine",) if family.engine else ()
            labels = ("model_name", *own, *([family.label] if family.label else []))
            metric: Counter | Gauge | Histogram
            match family.kind:
                case "counter":
                    metric = Counter(name, _HELP, labels, registry=self._own)
                case "gauge":
                    metric = Gauge(name, _HELP, labels, registry=self._own, multiprocess_mode="mostrecent")
                case "histogram":
                    metric = Histogram(name, _HELP, labels, registry=self._own, buckets=family.buckets)
            for engine in [str(e) for e in range(engines)] if family.engine else [None]:
                for value in family.values or (None,):
                    key = tuple(v for v in (engine, value) if v is not None)
                    self._children[family.name, *key] = metric.labels(self._model, *key)

    def _info(self, engines: int, values: Mapping[str, str]) -> None:
        from prometheus_client import Gauge

        info = Gauge("vllm:cache_config_info", _HELP, [*values, "engine"], registry=self._own, multiprocess_mode="mostrecent")
        for engine in range(engines):
            info.labels(*values.values(), str(engine)).set(1)

    def _counter(self, name: str, engine: int, *extra: str) -> Counter:
        return cast("Counter", self._children[name, str(engine), *extra])

    def _gauge(self, name: str, engine: int, *extra: str) -> Gauge:
        return cast("Gauge", self._children[name, str(engine), *extra])

    def _observe(self, name: str, engine: int, value: float, count: int = 1) -> None:
        """`count` observations of `value`, at the price of one."""
        child = cast("Histogram", self._children[name, str(engine)])
        child._sum.inc(value * count)  # noqa: SLF001 prometheus_client has no public way
        child._buckets[bisect_left(self._buckets[name], value)].inc(count)  # noqa: SLF001


def grouped(gaps: Iterable[float]) -> dict[float, int]:
    """How many of the requests of one step waited how long: most got their last token together."""
    counts: dict[float, int] = {}
    for gap in gaps:
        counts[gap] = counts.get(gap, 0) + 1
    return counts
