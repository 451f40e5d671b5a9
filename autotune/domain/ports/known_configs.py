"""What tables of others say."""

from collections.abc import Sequence
from typing import Protocol

from autotune.domain.known_config import KnownConfig


class KnownConfigs(Protocol):
    """Configs that were tuned elsewhere."""

    def known_configs(self, kernel: str | None = None) -> Sequence[KnownConfig]:
        """In the order in which they came."""


class KnownConfigStore(KnownConfigs, Protocol):
    """Where they are kept."""

    def save_known_configs(self, found: Sequence[KnownConfig]) -> int:
        """How many were not there yet. One that was has the time and the source of one with a
        time from now on."""
