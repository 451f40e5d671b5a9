"""Which parts of a config decide how fast it is."""

from collections.abc import Mapping, Sequence

from autotune.searching.study import axis_importances


def importances(
    timed: Sequence[tuple[Mapping[str, object], float]],
) -> Sequence[tuple[str, float]]:
    """Of each part of some configs with their times, the largest first; () where too few differ.

    Only parts that all of them have, and that are not the same in all, are looked at.
    """
    names = set.intersection(*(set(values) for values, _ in timed)) if timed else set()
    texts = [({name: str(values[name]) for name in sorted(names)}, us) for values, us in timed]
    varying = [name for name in sorted(names) if len({values[name] for values, _ in texts}) > 1]
    if len(texts) < _FEWEST or not varying:
        return ()
    shares = axis_importances(
        [({name: values[name] for name in varying}, us) for values, us in texts]
    )
    return sorted(shares.items(), key=lambda pair: -pair[1])


_FEWEST = 8  # trials with a time
