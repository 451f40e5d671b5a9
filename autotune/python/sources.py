"""Where configs come from, as the Python face has it: each answer says why in one sentence."""

from collections.abc import Collection, Sequence

from autotune.answering import client, sources
from autotune.answering.matching import KINDS, Match
from autotune.answering.sources import ACCEPT
from autotune.domain.key import Key
from autotune.wording.match import in_words


class Client(client.ServiceAnswers):
    __doc__ = client.ServiceAnswers.__doc__

    def lookup(self, questions: Sequence[Key], accept: Collection[str] = KINDS) -> list[Match]:
        """One answer each, in the same order, all from one snapshot: the best of an accepted kind.

        Raises ``InvalidInputError`` for a kind that there is not, and nothing else unless
        ``strict``: then ``ServiceError`` when the service cannot be used.
        """
        answers = super().lookup(questions, accept)
        return list(map(in_words, answers, questions))

    def match(self, key: Key, accept: Collection[str] = KINDS) -> Match:
        """The best answer of an accepted kind; asks only for what no ``lookup`` has asked for."""
        return in_words(super().match(key, accept), key)


class BundleSource(sources.BundleAnswers):
    __doc__ = sources.BundleAnswers.__doc__

    def match(self, key: Key, accept: Collection[str] = ACCEPT) -> Match:
        """Raises ``InvalidInputError`` for a file that cannot be read."""
        return in_words(super().match(key, accept), key)


class StoreSource(sources.StoreAnswers):
    __doc__ = sources.StoreAnswers.__doc__

    def match(self, key: Key, accept: Collection[str] = ACCEPT) -> Match:
        """Raises ``StoreError``."""
        return in_words(super().match(key, accept), key)
