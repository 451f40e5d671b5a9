"""The client of a service, as the Python face has it: each answer says why in one sentence.

A module of its own: a model server that asks a service loads no other source.
"""

from collections.abc import Collection, Sequence

from autotune.answering import client
from autotune.answering.matching import KINDS, Match
from autotune.domain.key import Key
from autotune.domain.problem import Config
from autotune.wording.match import in_words


class Client(client.ServiceAnswers):
    __doc__ = client.ServiceAnswers.__doc__

    def lookup(
        self,
        questions: Sequence[Key],
        accept: Collection[str] = KINDS,
        without: Collection[Config] = (),
    ) -> list[Match]:
        """One answer each, in the same order, all from one snapshot: the best of an accepted kind.

        Raises ``InvalidInputError`` for a kind that there is not, and nothing else unless
        ``strict``: then ``ServiceError`` when the service cannot be used.
        """
        answers = super().lookup(questions, accept, without)
        return list(map(in_words, answers, questions))

    def match(
        self, key: Key, accept: Collection[str] = KINDS, without: Collection[Config] = ()
    ) -> Match:
        """The best answer of an accepted kind; asks only for what no ``lookup`` has asked for."""
        return in_words(super().match(key, accept, without), key)
