"""A rank's KV cache as a number of tokens."""

from __future__ import annotations


class KvPool:
    """Counts tokens; which page holds which token does not matter to any signal.

    `reserved` tokens are held by nobody's request, as leaked or pinned ones are: the pages call them used, and no request gets
    them. What running requests hold is not taken from them by a reservation: it waits for them to give it back.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.reserved = 0
        self._taken = 0

    @property
    def free(self) -> int:
        """Tokens that a request may still take; negative while a new reservation waits for its own."""
        return self.capacity - self._taken - self.reserved

    @property
    def used(self) -> int:
        used = self._taken + self.reserved
        return min(self.capacity, used)

    def take(self, tokens: int) -> None:
        # `free`, without the call; it is negative while a reservation waits, and then nothing may be taken
        if tokens > 0 and tokens > self.capacity - self._taken - self.reserved:
            raise ValueError(f"{tokens} tokens asked of a pool with {self.free} free")
        self._taken += tokens

    def give_back(self, tokens: int) -> None:
        self._taken -= tokens

    def reserve(self, tokens: int) -> None:
        """Holds so many tokens from now on, instead of what was reserved before; 0 gives them back."""
        if not 0 <= tokens <= self.capacity:
            raise ValueError(f"{tokens} tokens reserved of a pool of {self.capacity}")
        self.reserved = tokens
