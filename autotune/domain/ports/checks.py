"""What is known of records under other toolchains and on other chips."""

from collections.abc import Sequence
from typing import Protocol

from autotune.domain.check import Check
from autotune.domain.config import Config
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.record_check import RecordCheck


class CheckStore(Protocol):
    """Where verdicts are kept: one for each record key and each toolchain and chip."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions: for which form of call a decorated function was searched."""

    def save_check(self, check: Check) -> None:
        """Keep a verdict, in the place of an earlier one on the same."""

    def publish_checks(
        self, found: Sequence[tuple[Key, Config, RecordCheck]], by: str = ""
    ) -> None:
        """Note on each published record what is known of its config, all in one new snapshot; none
        where that was known, or another config is published by now. A pin stays. ``by``:
        the name of the token that brought it."""

    def check(self, key: Key, target: Key) -> Check | None:
        """The verdict on the record of ``key`` under the toolchain and chip of ``target``."""

    def checks(self, limit: int = 1000) -> Sequence[Check]:
        """The newest first."""
