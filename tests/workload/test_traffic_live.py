"""Recorded traffic through real ranks, each with its own prefix cache."""

from __future__ import annotations

import time

import pytest

from workload.cluster import Cluster
from workload.config import ClusterConfig


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_each_rank_pays_once_for_a_shared_document(tmp_path, probe):
    """Six questions about one document of 2,000 tokens, dealt in turn to 2 ranks: each computes it once and finds it twice."""
    recording = tmp_path / "day.csv"
    recording.write_text("time,input,output,prefix\n" + "".join(f"{0.4 * i},2100,2,contract:2000\n" for i in range(6)))
    with Cluster(ClusterConfig(ranks=2, traffic=None, replay=str(recording))) as cluster:
        reader = probe(cluster)
        deadline = time.monotonic() + 10
        while (page := reader.page()).get(("num_requests_total", "", ""), 0) < 6 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert page["num_requests_total", "", ""] == 6
        for rank in "01":
            assert page["realtime_tokens_total", rank, "prefill_cache"] == 2 * 2000
            assert page["realtime_tokens_total", rank, "prefill_compute"] == 2100 + 2 * 100
