"""Published records in one file: what a model server starts from when there is no service.

Gzipped JSON: ``{"format": …, "snapshot": number or null, "created_at": …, "records": […],
"kernels": […], "with_options": […], "tried": [[…]]}``, the last for each record. The same records
in the same order give the same bytes. Files of older versions have no ``kernels`` and nothing
``tried``. Records of compiler options stand apart, the last: older clients, which know no options,
would take them for their own. And what a config that others send must be, by the description of
its kernel.
"""

import errno
import gzip
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, Identity, KernelSpec, Key, identity_of
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config
from autotune.domain.record import Record, TimedConfig

MOST_VMEM_BYTES: Mapping[Chip, int] = {
    Chip.V2: 16 << 20,
    Chip.V3: 16 << 20,
    Chip.V4: 16 << 20,
    Chip.V5E: 128 << 20,
    Chip.V5P: 64 << 20,
    Chip.V6E: 128 << 20,
    Chip.V7X: 64 << 20,
}
"""Of a TensorCore, as ``get_tpu_info_for_chip`` of jax 0.10 to 0.12 has it: services have no JAX
that they could ask."""

_MOST = 2**31 - 1  # of a number that is no block size: what an index on a TPU holds
_LANES = 128  # a block of whole tiles may be larger than a short dimension: the rest is padding
_WORD = re.compile(r"[A-Za-z0-9_.+:/-]{0,100}")


def has_possible_config(record: Record, spec: KernelSpec | None) -> bool:
    """Whether its config may be handed on, as far as a description of its kernel says so."""
    return (
        spec is None or impossible(record.config, record.default.config, spec, record.key) is None
    )


def impossible(config: Config, like: Config | None, spec: KernelSpec, key: Key) -> str | None:
    """Why no space of this key has this config, in a sentence; None: it may have.

    ``like``: the default config, whose axes have values of the same types.
    """
    given = dict(config.axes)
    if set(given) != set(spec.axes) or len(config.axes) != len(spec.axes):
        return f"its configs must have the axes {', '.join(spec.axes)}"
    types = {name: type(value) for name, value in like.axes} if like else {}
    dims, cuts = dict(key.problem.dims), dict(spec.cuts)
    for name, value in given.items():
        if name in cuts and cuts[name] in dims:
            why = _of_block(value, dims[cuts[name]])
        else:
            why = _of_value(value, types.get(name))
        if why is not None:
            return f"axis {name} {why}"
    return _of_grid(config, spec) or _of_limit(config.vmem_limit_bytes, key.chip)


def _of_block(value: AxisValue, size: int) -> str | None:
    most = max(size, _LANES)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        return f"is a block size: it must be a whole number from 1 to {most}"
    return None


def _of_value(value: AxisValue, kind: type[AxisValue] | None) -> str | None:
    if kind is not None and type(value) is not kind:
        return f"must be of the type {kind.__name__}, as it is in the default config"
    if isinstance(value, str) and not _WORD.fullmatch(value):
        return "must be a word of letters, digits and _.+:/-"
    if not isinstance(value, str) and not 0 <= value <= _MOST:
        return f"must be from 0 to {_MOST}"
    return None


def _of_grid(config: Config, spec: KernelSpec) -> str | None:
    order, semantics = config.grid_order, config.dimension_semantics
    if order and sorted(order) != sorted(spec.grid):
        return f"its grid order must name each of {', '.join(spec.grid) or 'no axis'} once"
    if order and semantics and len(order) != len(semantics):
        return "it must have as many dimension semantics as grid axes"
    if not set(semantics) <= {PARALLEL, ARBITRARY}:
        return f"its dimension semantics must be {PARALLEL} or {ARBITRARY}"
    return None


def _of_limit(limit_bytes: int | None, chip: Chip) -> str | None:
    most = MOST_VMEM_BYTES[chip]
    if limit_bytes is not None and not 0 < limit_bytes <= most:
        return f"its VMEM limit must be from 1 to {most} bytes, which is what a {chip} has"
    return None


FORMAT = "pallas-autotune bundle 1"
MOST_BYTES = 256 << 20  # of text: some 190,000 records
Specs = Mapping[tuple[str, str], KernelSpec]
"""Descriptions of kernels by name and fingerprint."""

MOST_TRIED = 32  # configs of a key, the fastest: a model's other default is often among them
Tried = Mapping[Identity, Sequence[TimedConfig]]

_GZIP = 16 + zlib.MAX_WBITS
_WITH_OPTIONS = "with_options"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBundle:
    """``snapshot``: its number where the records are one snapshot of a service; ``snapshot_id``
    tells it from others with that number. ``kernels``: what is known of those of the records, to
    tell whether a config suits another shape. ``tried``: for each key of a record other configs
    with their times, for a model with another default."""

    records: tuple[Record, ...]
    created_at: datetime
    snapshot: int | None = None
    snapshot_id: str = ""
    kernels: tuple[KernelSpec, ...] = ()
    tried: Tried = field(default_factory=dict)

    def accepted(self, *, claimed: bool) -> Sequence[Record]:
        """The records, without what is only ``claimed``, or was not verified, unless that is
        accepted."""
        return [r for r in self.records if claimed or r.proves(r.config)]


def new_bundle(
    records: Sequence[Record],
    snapshot: int | None = None,
    kernels: Sequence[KernelSpec] = (),
    created_at: datetime | None = None,
    snapshot_id: str = "",
    tried: Tried | None = None,
) -> RecordBundle:
    """Made now, unless another time is given. Kernels without a record are left out, and so are
    records with a time or a config that cannot be."""
    specs = {(spec.name, spec.fingerprint): spec for spec in kernels}
    possible = [record for record in records if is_possible(record, specs)]
    used = {(record.key.kernel, record.key.fingerprint) for record in possible}
    return RecordBundle(
        records=tuple(map(slim, possible)),
        created_at=created_at or datetime.now(UTC),
        snapshot=snapshot,
        snapshot_id=snapshot_id,
        kernels=tuple(spec for spec in kernels if (spec.name, spec.fingerprint) in used),
        tried=tried or {},
    )


def slim(record: Record) -> Record:
    """Without what explains its estimate: that is for people, and large."""
    if record.estimate.explanation is None:
        return record
    return replace(record, estimate=replace(record.estimate, explanation=None))


def bundle_to_bytes(bundle: RecordBundle) -> bytes:
    """``bundle_from_bytes`` is the inverse."""
    ordered = sorted(bundle.records, key=lambda record: bool(record.key.toolchain.options))
    plain = [record for record in ordered if not record.key.toolchain.options]
    data: dict[str, Any] = {
        "format": FORMAT,
        "snapshot": bundle.snapshot,
        **({"snapshot_id": bundle.snapshot_id} if bundle.snapshot_id else {}),
        "created_at": bundle.created_at.isoformat(),
        "records": [to_data(record) for record in plain],
        "kernels": [to_data(spec) for spec in bundle.kernels],
    }
    if len(plain) < len(ordered):
        data[_WITH_OPTIONS] = [to_data(record) for record in ordered[len(plain) :]]
    if bundle.tried:
        tried = (bundle.tried.get(identity_of(record.key), ()) for record in ordered)
        data["tried"] = [[to_data(timed) for timed in configs] for configs in tried]
    return gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)


def _decompressed(content: bytes) -> bytes:
    """Raises ``ValueError``, before it takes more memory than a bundle may have."""
    reader = zlib.decompressobj(wbits=_GZIP)
    text = reader.decompress(content, MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB of text")
    if not reader.eof or reader.unused_data:
        raise ValueError("its end is missing, or something follows it")
    return text


def bundle_from_bytes(content: bytes, name: str = "the bundle") -> RecordBundle:
    """Raises ``InvalidInputError`` with a sentence that calls it ``name``."""
    try:
        data: dict[str, Any] = json.loads(_decompressed(content))
        form = data.get("format")
    except (OSError, EOFError, ValueError, AttributeError, RecursionError, zlib.error) as error:
        raise InvalidInputError(f"{name} is not a bundle of records: {error}") from error
    if form != FORMAT:
        raise InvalidInputError(f"{name} has the format {form!r}, this version reads {FORMAT!r}")
    try:
        kernels = tuple(from_data(KernelSpec, spec) for spec in data.get("kernels", ()))
        specs = {(spec.name, spec.fingerprint): spec for spec in kernels}
        items = *data["records"], *data.get(_WITH_OPTIONS, ())
        records = tuple(_record(item, specs) for item in items)
        keys = {identity_of(record.key): record.key for record in reversed(records)}
        if len(keys) < len(records):
            twice = next(r.key for r in records if keys[identity_of(r.key)] is not r.key)
            raise ValueError(f"{twice} has two, of which nobody knows which one is meant")
        return RecordBundle(
            records=records,
            tried={
                identity_of(record.key): [from_data(TimedConfig, timed) for timed in configs]
                for record, configs in zip(records, data.get("tried", ()), strict=False)
            },
            created_at=datetime.fromisoformat(data["created_at"]),
            snapshot=data["snapshot"],
            snapshot_id=str(data.get("snapshot_id", "")),
            kernels=kernels,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"{name} holds a record that cannot be read: {error}") from error


def _record(data: Any, kernels: Specs) -> Record:
    record = from_data(Record, data)
    if record.created_at.utcoffset() is None:
        raise ValueError(f"{record.key} was made at a time without a zone: {record.created_at}")
    if not record.has_possible_times:
        raise ValueError(f"{record.key} has a time that is not positive and finite")
    if not is_possible(record, kernels):
        raise ValueError(f"{record.key} has a config that its kernel cannot have: {record.config}")
    return record


def is_possible(record: Record, kernels: Specs) -> bool:
    """Whether it may be handed on. Older versions took times, and configs, that cannot be."""
    spec = kernels.get((record.key.kernel, record.key.fingerprint))
    return record.has_possible_times and has_possible_config(record, spec)


def write_whole(path: Path, content: bytes) -> None:
    """All of it or nothing: readers never see half a file, and it stays what it was: a device, a
    link, of its mode. Raises ``OSError``."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if getattr(error, "errno", None) != errno.EBUSY:
            raise
        path.write_bytes(content)  # a file that is mounted for itself cannot be replaced


def read_bundle(path: Path) -> RecordBundle:
    """Raises ``InvalidInputError`` for a file that is missing, damaged or of another format."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    return bundle_from_bytes(content, str(path))
