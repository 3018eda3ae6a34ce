"""Traffic by name. Each preset says where its numbers come from; what is not from a source is called an assumption.

"Azure 2023" is the Azure LLM inference trace of November 2023 (AzurePublicDataset, with the Splitwise paper): 19,366
conversation and 8,819 coding requests of one hour. "Mooncake" is the conversation trace of the Mooncake FAST'25 release: 12,031
requests of one hour. Both were read for the figures below: medians and quantiles of the lengths, and the deviation of their
logarithm. Rates are assumptions throughout: what keeps 8 ranks of the virtual card busy and not drowned.
"""

from __future__ import annotations

import difflib

from workload.traffic.model import BurstLoop, ClosedLoop, Conversations, DiurnalLoop, Documents, Lengths, OpenLoop, Traffic

# The next turn of a conversation: 4-8K tokens of context, all but the new message cached, some ten seconds of answer.
# 12 users a rank that think 3 s and wait about 10 s keep some 9 requests in each rank's decode batch.
# Assumptions, though not far from Mooncake's median prompt of 6,909 and answer of 350 tokens: level and calm on purpose, as
# the healthy background of every fault.
CHAT = Traffic(
    arrivals=ClosedLoop(),
    prompt=Lengths(median=5000, sigma=0.5, low=512, high=32_768),
    fresh=Lengths(median=100, sigma=0.7, low=8, high=400),
    output=Lengths(median=200, sigma=0.6, low=16, high=1500),
)

# Coding agents: a context that grows by tool results. In the TraceLab pool of 357,161 agent steps (University of Washington) a
# step behind 32K to 256K tokens of prefix appends 710 to 954 tokens in the median and 3.2K to 8.3K at the 90th percentile, which
# is a sigma of about 1.2. Instructions plus tool descriptions are 16K tokens in the published Claude Code traces of
# semianalysisai (3K to 4K system, 12K to 13K tools); their answers are 140 to 250 tokens. 30 steps reach about 80K tokens, the
# figure vLLM and Mooncake give for Codex on SWE-bench Pro. Assumptions: two agents a rank, one kind of agent, 5 s per tool call.
AGENT = Traffic(
    arrivals=ClosedLoop(users_per_rank=2, think=5.0),
    prompt=Lengths(median=2000, sigma=1.0, low=200, high=20_000),
    fresh=Lengths(median=800, sigma=1.2, low=20, high=20_000),
    output=Lengths(median=180, sigma=0.7, low=20, high=2000),
    sharing=Conversations(system=16_000, systems=1, turns=30, context=131_072, pause=5.0),
)

# Questions about documents. RAGCache (arXiv 2404.12457) found 3 % of the documents behind 60 % of the requests: of 1,000 documents
# that is a Zipf exponent of 1.07. Questions of about a hundred tokens are from there too. Assumptions: 1,000 documents of 3,000
# tokens, 500 tokens of instructions, answers as in Azure 2023's conversations.
RAG = Traffic(
    arrivals=OpenLoop(rate=4.0),
    prompt=Lengths(median=3000, sigma=0.6, low=300, high=12_000),
    fresh=Lengths(median=100, sigma=0.5, low=10, high=500),
    output=Lengths(median=129, sigma=0.86, low=4, high=1000),
    sharing=Documents(system=500, count=1000, zipf=1.07),
)

# Mooncake's prompts: median 6,909, sigma 1.2, longest 126,195. With a cache without end 63 % of their tokens are new, with a sigma
# of 1.7. Prompt and new part are drawn apart here and the new one is cut at the prompt (an assumption: in the trace long prompts
# have long new parts, 2,471 tokens in the median), so the new part's median is what brings those 63 % about. The answers have a
# median of 350 and 597 tokens at the 90th percentile, which is a sigma of 0.42.
LONG_CONTEXT = Traffic(
    arrivals=OpenLoop(rate=0.8),
    prompt=Lengths(median=6909, sigma=1.2, low=512, high=126_195),
    fresh=Lengths(median=20_000, sigma=1.7, low=64, high=126_195),
    output=Lengths(median=350, sigma=0.42, low=10, high=2000),
)

# Azure 2023's coding requests: prompts with a median of 1,469 (sigma 1.36, longest 7,437), answers of 13 (sigma 0.85, longest
# 1,899). They come in bursts: counted per minute, variance over mean is 167 at 2.6 requests a second and the busiest minute has
# 4.2 times the mean. Two states with a tenth of the time at 6 times the mean rate of 4 a second give 1 + 25 x 4 = 101 on long
# counts (the formula for a two-state Markov-modulated Poisson process). Assumptions: bursts of 5 s, nothing cached.
BURSTY = Traffic(
    arrivals=BurstLoop(calm=16 / 9, burst=24.0, calm_seconds=45.0, burst_seconds=5.0),
    prompt=Lengths(median=1469, sigma=1.36, low=16, high=7437),
    fresh=None,
    output=Lengths(median=13, sigma=0.85, low=1, high=1899),
)

# Azure 2023's conversations: prompts with a median of 1,020 (sigma 0.99, longest 14,050), answers of 129 (sigma 0.86, longest
# 1,000). The week of the Azure 2024 trace (27.3 million conversation requests, with the DynamoLLM paper) shows a daily wave;
# that its peak has three times the load of its trough (swing 0.5) is an assumption, and so is that nothing is cached.
DIURNAL = Traffic(
    arrivals=DiurnalLoop(rate=5.0, swing=0.5),
    prompt=Lengths(median=1020, sigma=0.99, low=16, high=14_050),
    fresh=None,
    output=Lengths(median=129, sigma=0.86, low=1, high=1000),
)

PRESETS = {"chat": CHAT, "agent": AGENT, "rag": RAG, "long_context": LONG_CONTEXT, "bursty": BURSTY, "diurnal": DIURNAL}


def preset(name: str) -> Traffic:
    """Raises ValueError with the nearest name when there is none of that name."""
    if (traffic := PRESETS.get(name)) is None:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        raise ValueError(f"no traffic {name!r}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(PRESETS)}"))
    return traffic
