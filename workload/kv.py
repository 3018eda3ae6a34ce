"""A rank's KV cache as a number of tokens."""

from __future__ import annotations


class KvPool:
    """Counts tokens; which page holds which token does not matter to any signal."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def take(self, tokens: int) -> None:
        if tokens > self.free:
            raise ValueError(f"{tokens} tokens asked of a pool with {self.free} free")
        self.used += tokens

    def give_back(self, tokens: int) -> None:
        self.used -= tokens
