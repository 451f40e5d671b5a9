"""How many rows each group of a grouped matrix product has (experts of a mixture).

What the kernels fetch depends on the group sizes, so these are known: ``balanced``, or ``skewed``
as after a mixture-of-experts router: Zipf's law with exponent 1 over the groups in random order,
each row drawn on its own from NumPy's ``default_rng(0)``. They sum to m, so every row is written.
"""

from typing import Any

import numpy as np

from autotune import Problem

_SEED = 0


def group_sizes(problem: Problem) -> Any:
    """Rows of each group: int32 [groups], of sum m."""
    m, groups = problem["m"], problem["groups"]
    if problem.option("sizes") == "balanced":
        return equal_groups(problem)
    rng = np.random.default_rng(_SEED)
    shares = 1 / (1 + rng.permutation(groups))
    return rng.multinomial(m, shares / shares.sum()).astype(np.int32)


def equal_groups(problem: Problem) -> Any:
    """Rows of each group, about as many each: int32 [groups], of sum m."""
    groups = problem["groups"]
    return np.diff(np.arange(groups + 1) * problem["m"] // groups).astype(np.int32)
