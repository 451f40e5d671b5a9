"""How long does a model wait for a config while it is traced: the first time, and later?

    python -m benchmarks answers [--rounds 20000]

Processor time, from a bundle that is loaded. Apart: reading the source of the kernel, once for each
kernel, which is what its fingerprint is made of.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autotune
from autotune.answering.bundle import bundle_to_bytes, new_bundle
from autotune.declaring.calls.text import AbstractArray
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.key import Chip, installed_toolchain
from benchmarks.harness.servers import sample
from benchmarks.kernels.scaled import scaled

X, W = AbstractArray((256, 512), "bfloat16"), AbstractArray((1, 512), "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20_000)
    rounds = parser.parse_args().rounds
    logging.getLogger("autotune").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        source = _bundle(Path(folder) / "c.bundle")
        source.match(sample(0).key)  # loads it
        autotune.configure(source=source, chip="v6e")
        ref = scaled.ref(X, W)
        print(f"source of the kernel   {_ms(lambda: fingerprint(ref)):8.2f} ms")
        print(f"first answer, with it  {_ms(lambda: scaled.answer(X, W)):8.2f} ms")
        other = AbstractArray((512, 512), "bfloat16")
        print(f"first of another shape {_ms(lambda: scaled.answer(other, W)):8.2f} ms")
        decorated_us = _us(lambda: scaled._cached_answer((X, W), {}), rounds)
        print(f"later, decorated       {decorated_us:8.2f} us")
        tuned, problem = next(iter(scaled._tuned.values())), scaled.problem(X, W)
        print(f"later, Tuned           {_us(lambda: tuned.config(problem), rounds):8.2f} us")


def _bundle(path: Path) -> Any:
    assert installed_toolchain() is not None and Chip.V6E
    path.write_bytes(bundle_to_bytes(new_bundle([sample(0)])))
    return autotune.BundleSource(path)


def _ms(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1e3


def _us(call: Callable[[], Any], rounds: int) -> float:
    started = time.process_time()
    for _ in range(rounds):
        call()
    return (time.process_time() - started) / rounds * 1e6
