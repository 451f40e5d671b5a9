"""A decode step of tpu-inference 0.32.0, its own model, cache and attention, sharded over all
devices; only ``benchmarks steps`` uses it.

``AUTOTUNE_STEP`` has as JSON the model of ``tests/samples/models`` that it is ``like`` but for its
``sizes``, how many ``sequences`` there are, the ``context`` that each has and the ``longest`` that
it may. Lengths and pages are constants: the kernel's time depends on them.
"""

import json
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "samples" / "models"))

configs: Any = import_module("configs")
samples: Any = import_module("tpu_inference_steps")
ASKED: dict[str, Any] = json.loads(os.environ["AUTOTUNE_STEP"])
SEQUENCES, CONTEXT = ASKED["sequences"], ASKED["context"]
_PAGES = -(-CONTEXT // samples.PAGE)  # that a sequence has; the cache has no others
configs.CONFIGS["served"] = configs.CONFIGS[ASKED["like"]] | ASKED["sizes"]
_CONFIG = configs.hugging_face("served")
MESH, _GRAPH, _ABSTRACT = samples.abstract(
    _CONFIG, "auto", {"data": 1, "model": jax.device_count()}
)
jax.set_mesh(MESH)


def _array(array: Any, spec: Any) -> Any:
    sharding = NamedSharding(MESH, spec)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


STATE = jax.tree.map(_array, _ABSTRACT, nnx.get_partition_spec(_ABSTRACT))
_HEADS = PartitionSpec(None, None, "model")
CACHES = [
    _array(cache, _HEADS)
    for cache in jax.eval_shape(lambda: samples.caches(_CONFIG, "auto", MESH, SEQUENCES * _PAGES))
]
TOKENS = _array(jax.ShapeDtypeStruct((SEQUENCES,), jnp.int32), PartitionSpec())


def _metadata(places: Any) -> Any:
    tables = np.zeros((SEQUENCES, ASKED["longest"] // samples.PAGE), np.int32)
    tables[:, :_PAGES] = np.arange(SEQUENCES * _PAGES).reshape(SEQUENCES, _PAGES)
    return samples.AttentionMetadata(
        input_positions=places,
        block_tables=tables.ravel(),
        seq_lens=np.full(SEQUENCES, CONTEXT, np.int32),
        query_start_loc=np.arange(SEQUENCES + 1, dtype=np.int32),
        request_distribution=np.full(3, SEQUENCES, np.int32),
        padded_num_reqs=SEQUENCES,
    )


@partial(jax.jit, donate_argnums=1)
def decode(state: Any, caches: Any, tokens: Any, places: Any) -> Any:
    """One token for each sequence, the likeliest."""
    served = nnx.merge(_GRAPH, state)
    caches, hidden, *_ = served(caches, tokens, _metadata(places))
    return caches, jnp.argmax(served.compute_logits(hidden), -1)
