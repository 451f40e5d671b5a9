"""What the compiled HLO module says of a kernel, whatever its metadata looks like."""

from autotune.compiling.child.compile import hlo

MODULE = """HloModule jit_f

ENTRY %main.4 (x: f32[8,128]) -> f32[8,128] {
  %x.1 = f32[8,128]{1,0:T(8,128)} parameter(0), backend_config={"estimated_cycles":"5"}
  %call.1 = (f32[8,128]{1,0:T(8,128)}) custom-call(%x.1), custom_call_target="tpu_custom_call", \
frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 512}"
}}, backend_config={"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"4096"}],\
"estimated_cycles":"77"}
  ROOT %out.1 = f32[8,128]{1,0:T(8,128)} get-tuple-element(%call.1), index=0, \
backend_config={"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"9999"}]}
}
"""


def test_metadata_over_several_lines_belongs_to_the_call():
    (call,) = hlo.kernel_calls(MODULE)
    assert (call.name, call.vmem_bytes, call.results) == ("call.1", 4096, ((8, 128),))


def test_without_a_kernel_there_is_nothing_to_say():
    plain = MODULE.replace("tpu_custom_call", "Sharding")
    sparse = MODULE.replace('"estimated_cycles":"77"', '"compute_type":"COMPUTE_TYPE_TILE"')
    assert hlo.kernel_calls(plain) == hlo.kernel_calls(sparse) == []
