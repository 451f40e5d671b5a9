"""MaxText's fork of JAX's grouped matrix products: its mixtures of experts are trained with it."""

from functools import partial
from typing import Any

from autotune_kernels.from_jax import megablox
from autotune_kernels.parts import needing, part


def _function(name: str) -> Any:
    return getattr(part("maxtext.kernels.megablox.backend"), name)


_check = needing("maxtext", "maxtext", megablox.check)

GMM = megablox.gmm(
    "maxtext_gmm",
    partial(_function, "gmm"),
    "MaxText's megablox gmm: rows in groups, each group times its own weights",
    _check,
)
TGMM = megablox.tgmm(
    "maxtext_tgmm",
    partial(_function, "tgmm"),
    "MaxText's megablox tgmm: for each group lhs.T @ rhs, the gradient of weights",
    _check,
)
