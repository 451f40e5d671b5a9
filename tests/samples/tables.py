"""Small tables in the forms of others."""

QUANTIZED = """
TUNED_BLOCK_SIZES_RAW = {
    # go/keep-sorted start
    (6, 1024, 1024, 4096, 'int8', 'int8'): (1024, 256, 4096),
    (6, 128, 1024, 4096, 'int8', 'int8'): (128, 256 * 2, 4096),  # as measured
    (7, 128, 1024, 4096, 'int8', 'int8'): (128, 512, 4096, 2),
    # go/keep-sorted end
}
"""

FLASH = """
from dataclasses import dataclass

@dataclass(frozen=True)
class TuningKey:
    batch_size: int
    num_heads: int
    q_seq_len: int
    kv_seq_len: int
    head_dim: int
    q_dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"

@dataclass(frozen=True)
class TunableParams:
    block_q: int
    block_k_major: int
    block_k: int
    block_b: int

tuned_params_mapping: dict[TuningKey, TunableParams] = {
    TuningKey(8, 16, q_seq_len=2560, kv_seq_len=2560, head_dim=72):
        TunableParams(block_q=640, block_k_major=2560, block_k=512, block_b=1),
}
"""

PAGED = """
TUNED_BLOCK_SIZES = {
    'TPU v6e': {
        128: {
            'q_bfloat16_kv_bfloat16': {
                'q_head-8_kv_head-4_head-256': {
                    'max_model_len-2048-sw-None': (16, 32),
                    4096: (16, 32),
                },
            },
        },
    },
}
"""

RAGGED_KEY = (
    '{"lhs":"bf16[512,256]","rhs":"bf16[8,256,512]","group_sizes":{"num_groups":8,'
    '"total_size":512},"ragged_dot_dimension_numbers":{"dot_dimension_numbers":[[[1],[1]],[[],[]]],'
    '"lhs_ragged_dimensions":[0],"rhs_group_dimensions":[0]},"precision":["DEFAULT","DEFAULT"],'
    '"preferred_element_type":null,"return_residuals":false,"activation":null}'
)
RAGGED_CONFIG = (
    '{"tile_m":128,"tile_k":256,"tile_n":512,"input_buffer_count":2,"combine_scopes":false}'
)
FLAGS = """
sa_block_q: 1024
sa_block_kv: 4096
sa_block_kv_compute: 512
base_num_query_heads: 32
base_num_kv_heads: 8
head_dim: 128
max_target_length: 2048
dtype: bfloat16
"""

LIBRARY = """
from typing import NamedTuple
import jax

class TunedValue(NamedTuple):
    batch_block_size: int
    out_block_size: int
    in_block_size: int
    n_lane_multiplier: int = 1

TUNED_BLOCK_SIZES_RAW = {
    (6, 1024, 1024, 4096, 'int8', 'int8'): (1024, 256, 4096),
    (6, 640, 1024, 4096, 'int8', 'int8'): (640, 256, 4096),
    (6, 2000, 1024, 4096, 'int8', 'int8'): (512, 256, 4096),
    (7, 64, 1024, 4096, 'int8', 'int8'): (64, 256, 4096),
    (6, 7, 1024, 4096, 'int8', 'int8'): (8, 256, 4096),
}
TUNED_BLOCK_SIZES = {key: TunedValue(*value) for key, value in TUNED_BLOCK_SIZES_RAW.items()}

def get_tuned_block_sizes(n_batch, n_out, n_in, x_q_dtype, w_q_dtype):
    kind = jax.devices()[0].device_kind
    print('a library may print')
    assert n_batch >= 8, 'too few rows'
    rounded = 1 << (n_batch - 1).bit_length()
    key = (int(kind[5] if kind.startswith('TPU v') else 7), rounded, n_out, n_in, 'int8', w_q_dtype)
    return TUNED_BLOCK_SIZES.get(key, TunedValue(128, 128, 128))
"""
