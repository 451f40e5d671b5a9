"""Kernels of packages that send to other devices, on all devices of a slice as one ring; only
``benchmarks sends`` uses it.

``AUTOTUNE_SENDS`` has their sizes as JSON.
"""

import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ASKED: dict[str, Any] = json.loads(os.environ["AUTOTUNE_SENDS"])
_DEVICES = np.array(jax.devices())


def _on(mesh: Mesh, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.bfloat16) -> Any:
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


class _Call:
    """A function with its arrays, as it is traced."""

    def __init__(self, function: Any, *arrays: Any) -> None:
        self._jitted, self._arrays = jax.jit(function), arrays

    def trace(self) -> Any:
        return self._jitted.trace(*self._arrays)

    def lower(self) -> Any:
        return self.trace().lower()

    def __call__(self) -> Any:
        return self.trace()


def _gathered() -> _Call:
    from jax.experimental.pallas.ops.tpu.all_gather import all_gather

    mesh = Mesh(_DEVICES, ("x",))
    shape = len(_DEVICES) * ASKED["rows"], ASKED["columns"]
    return _Call(lambda x: all_gather(x, mesh=mesh, axis_name="x"), _on(mesh, shape, "x"))


def _gathered_product() -> _Call:
    from tpu_inference.kernels.collectives.all_gather_matmul import all_gather_matmul

    mesh, (m, k, n) = Mesh(_DEVICES, ("x",)), ASKED["mkn"]
    return _Call(
        lambda x, y: all_gather_matmul(x, y, mesh, "x", bn=ASKED["bn"], bk=ASKED["bk"]),
        _on(mesh, (m, k), "x"),
        _on(mesh, (k, n), None, "x"),
    )


def _mixture() -> _Call:
    """Of tpu-inference: the router is in the kernel."""
    from tpu_inference.kernels.fused_moe.v1.kernel import fused_ep_moe

    mesh = Mesh(_DEVICES.reshape(1, -1), ("data", "model"))
    tokens, hidden, inner, experts = (ASKED[n] for n in ("tokens", "hidden", "inner", "experts"))
    return _Call(
        lambda *arrays: fused_ep_moe(mesh, *arrays, top_k=ASKED["top_k"]),
        _on(mesh, (tokens, hidden), "model"),
        _on(mesh, (experts, 2, hidden, inner), "model"),
        _on(mesh, (experts, inner, hidden), "model"),
        _on(mesh, (tokens, experts), "model"),
    )


def _routed_mixture() -> _Call:
    """Of sglang-jax: tokens go to experts in turn."""
    from sgl_jax.srt.kernels.fused_moe.v1.kernel import fused_ep_moe

    mesh = Mesh(_DEVICES.reshape(1, -1), ("data", "tensor"))
    tokens, hidden, inner, experts = (ASKED[n] for n in ("tokens", "hidden", "inner", "experts"))
    both, top_k = ("data", "tensor"), ASKED["top_k"]
    ids = np.arange(tokens * top_k, dtype=np.int32).reshape(tokens, top_k) % experts
    return _Call(
        lambda x, w1, w2, w3, shares: fused_ep_moe(
            mesh, x, w1, w2, w3, shares, jnp.asarray(ids), top_k=top_k
        ),
        _on(mesh, (tokens, hidden), both),
        _on(mesh, (experts, hidden, inner), both),
        _on(mesh, (experts, inner, hidden), both),
        _on(mesh, (experts, hidden, inner), both),
        _on(mesh, (tokens, top_k), both, dtype=jnp.float32),
    )


call = {f.__name__: f for f in (_gathered, _gathered_product, _mixture, _routed_mixture)}[
    f"_{ASKED['kernel']}"
]()
