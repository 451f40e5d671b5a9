"""Profiles of TPU and GPU shape, written in the text format of JAX's ``ProfileData``."""

from jax.profiler import ProfileData

from autotune.compiling.child.measure.xspace import planes

EPOCH_NS = 1_763_750_000_123_456_789

Row = tuple[str, int, int]  # name, start and duration in picoseconds


def text(device, lines, *, origin_ns=EPOCH_NS, module=""):
    """One plane. ``module``: what each event names as its HLO module, by reference."""
    names = list(dict.fromkeys(name for rows in lines.values() for name, _, _ in rows))
    parts = [f'name: "{device}"']
    for line, rows in lines.items():
        stat = " stats { metadata_id: 1 ref_value: 2 }" if module else ""
        events = "".join(
            f"events {{ metadata_id: {names.index(name) + 1} offset_ps: {start} "
            f"duration_ps: {size}{stat} }} "
            for name, start, size in rows
        )
        parts.append(f'lines {{ name: "{line}" timestamp_ns: {origin_ns} {events}}}')
    for number, name in enumerate(names, 1):
        parts.append(f'event_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}')
    for number, name in ((1, "hlo_module"), (2, module)):
        parts.append(f'stat_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}')
    return f"planes {{ {' '.join(parts)} }}"


def serialized(*texts):
    return ProfileData.text_proto_to_serialized_xspace("\n".join(texts))


def profile(*texts):
    return planes(serialized(*texts))


def tpu(number, modules, ops, **more):
    lines = {"XLA Modules": modules, "XLA Ops": ops, "Steps": [("0", 0, 10**9)]}
    return text(f"/device:TPU:{number}", lines, **more)


def calls(count, *, every=10_000_000, ps=5_000_123):
    """Runs of ``jit_k`` with one kernel of ``ps`` within, and a run of something else between."""
    modules, ops = list[Row](), list[Row]()
    for n in range(count):
        start = n * 10_000_000
        modules += [("jit_k(77)", start, ps + 2000), ("jit_other(5)", start + 6_000_000, 9000)]
        ops += [("kernel.1", start + 1000, ps), ("copy.2", start + 6_000_000, 4000)]
    return modules, ops
