"""Where configs come from, as the Python face has it: each answer says why in one sentence."""

from collections.abc import Collection

from autotune.answering import sources
from autotune.answering.matching import Match
from autotune.answering.sources import ACCEPT
from autotune.domain.key import Key
from autotune.domain.problem import Config
from autotune.wording.match import in_words


class BundleSource(sources.BundleAnswers):
    __doc__ = sources.BundleAnswers.__doc__

    def match(
        self, key: Key, accept: Collection[str] = ACCEPT, without: Collection[Config] = ()
    ) -> Match:
        """Raises ``InvalidInputError`` for a file that cannot be read."""
        return in_words(super().match(key, accept, without), key)


class StoreSource(sources.StoreAnswers):
    __doc__ = sources.StoreAnswers.__doc__

    def match(
        self, key: Key, accept: Collection[str] = ACCEPT, without: Collection[Config] = ()
    ) -> Match:
        """Raises ``StoreError``."""
        return in_words(super().match(key, accept, without), key)
