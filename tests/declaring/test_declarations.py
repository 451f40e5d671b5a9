"""Configs, block sizes, the grid in any order, fingerprints, the attached chip."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.declaring.discovery import find_kernel
from autotune.declaring.fingerprint import fingerprint
from autotune.declaring.kernel import Axis, block_sizes
from autotune.declaring.pallas import Grid
from autotune.domain.errors import InvalidInputError, KernelImportError, UnknownNameError
from autotune.domain.key import Chip
from autotune.domain.problem import Problem, make_config
from autotune.measuring.attached import attached_chip, attached_chips
from autotune_kernels.from_tpu_inference import fused_moe


@given(st.integers(1, 100_000), st.sampled_from([8, 16, 128]), st.integers(128, 8192))
def test_block_sizes_are_aligned_or_the_whole_dimension(extent, minimum, maximum):
    sizes = block_sizes(extent, minimum=minimum, maximum=maximum)
    assert sizes == sorted(set(sizes))
    assert sizes
    assert all(size == extent or size % minimum == 0 for size in sizes)
    assert all(size <= extent for size in sizes)
    assert all(size <= max(maximum, minimum) or sizes == [extent] for size in sizes)


def test_a_grid_follows_the_order_of_the_config():
    config = make_config({"b": 1}, grid_order=("k", "m"))
    grid = Grid(config, m=2, k=3)
    assert grid.sizes == (3, 2)
    assert (grid.axis("k"), grid.axis("m")) == (0, 1)
    assert grid.index_map(lambda m, k: (m, k))(10, 20) == (20, 10)
    assert grid.index_map(lambda m, table: (table, m))(10, 20, "ref") == ("ref", 20)


def test_a_grid_order_of_other_axes_is_refused():
    with pytest.raises(ValueError, match="does not name the axes"):
        Grid(make_config({}, grid_order=("a",)), m=1)


def test_kernels_are_found_by_name_and_by_file(tmp_path):
    assert find_kernel("matmul").module == "autotune_kernels.matmul"
    file = tmp_path / "mine.py"
    file.write_text("")
    assert find_kernel(f"{file}:NAME").attribute == "NAME"
    assert find_kernel(str(file)).attribute == "KERNEL"
    with pytest.raises(UnknownNameError, match=r"choose one of .*matmul"):
        find_kernel("no_such_kernel")
    with pytest.raises(KernelImportError, match="there is no kernel file"):
        find_kernel(f"{tmp_path}/absent.py:X")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"default": {"b": 8}}, "^default, of kernel vllm_fused_moe, .* lambda problem: {'b': 8}$"),
        ({"axes": (Axis(name="b", choices=[8]),)}, r"choices of b, .* lambda problem: \[8\]$"),
    ],
)
def test_values_in_the_place_of_a_function_are_said(parts, says):
    with pytest.raises(ValueError, match=says):
        replace(fused_moe.KERNEL, **parts)


def _pci(root, vendor, device, slot="0000:00:04.0"):
    folder = root / slot
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "device").write_text(device + "\n")
    return root


def test_the_attached_chip_is_read_from_the_bus(tmp_path):
    assert attached_chip(_pci(tmp_path / "a", "0x1ae0", "0x006f")) is Chip.V6E
    for name, vendor in (("b", "0x10de"), ("c", "0x1ae0")):
        with pytest.raises(InvalidInputError, match=r"no TPU is attached.*v5e"):
            attached_chip(_pci(tmp_path / name, vendor, "0x9999"))


def test_every_attached_chip_is_counted(tmp_path):
    assert attached_chips(tmp_path) == []
    for slot in ("0000:00:05.0", "0000:00:06.0"):
        _pci(tmp_path, "0x1ae0", "0x0063", slot)
    assert attached_chips(tmp_path) == [Chip.V5E, Chip.V5E]


FILES = {
    "kernel.py": "import shapes, math\nfrom package import inner\nK = shapes.A, inner.C\n",
    "shapes.py": "A = 1\n",
    "unrelated.py": "B = 1\n",
    "package/__init__.py": "",
    "package/inner.py": "from .deep import C\nfrom ..shapes import A\n",
    "package/deep.py": "def C():\n    import near\n    return near.D\n",
    "package/near.py": "D = 1\n",
}


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("kernel.py", True),
        ("shapes.py", True),
        ("package/inner.py", True),
        ("package/__init__.py", True),
        ("package/deep.py", True),
        ("package/near.py", True),
        ("unrelated.py", False),
    ],
)
def test_a_fingerprint_covers_what_is_imported_from_beside_the_kernel(changed, counts, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ref = find_kernel(f"{tmp_path}/kernel.py:K")
    before = fingerprint(ref)
    file = tmp_path / changed
    file.write_text(f"# said in other words\n\n{file.read_text()}")
    assert fingerprint(ref) == before
    file.write_text(f"{file.read_text()}A = D = K = C = inner = 2\n")
    assert (fingerprint(ref) != before) == counts


def test_a_fingerprint_of_a_file_that_does_not_parse(tmp_path):
    (tmp_path / "k.py").write_text("def (:\n")
    assert len(fingerprint(find_kernel(f"{tmp_path}/k.py:K"))) == 12


def test_kernels_of_a_package_share_its_helpers():
    from autotune.declaring.sources import code

    ref = find_kernel("jax_flash_attention")
    names = {path.name for path in code(Path(ref.path), ref.attribute)}
    assert {"flash_attention.py", "attention.py", "versions.py"} <= names
    assert "splash_attention.py" not in names and "kernel.py" not in names
    by_file = find_kernel(f"{ref.path}:{ref.attribute}")
    assert fingerprint(by_file) == fingerprint(ref)


@given(st.integers(1, 200), st.integers(1, 8))
def test_what_a_fused_moe_takes_has_sizes_of_blocks(each, devices):
    sizes = {"experts": devices, "top_k": 1, "hidden": 256, "intermediate": 256}
    dims = tuple({"tokens": each * devices, "devices": devices, **sizes}.items())
    problem = Problem(dims=dims, dtype="bfloat16")
    taken = fused_moe._check(problem) is None
    assert taken == all(axis.choices(problem) for axis in fused_moe.KERNEL.axes)
