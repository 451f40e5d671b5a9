"""Published records in one file: what a model server starts from when there is no service.

Gzipped JSON: ``{"format": …, "snapshot": number or null, "created_at": …, "records": […],
"kernels": […], "with_options": […], "tried": [[…]]}``, the last for each record. The same records
in the same order give the same bytes. Files of older versions have no ``kernels`` and nothing
``tried``. Records of compiler options stand apart, the last: older clients, which know no options,
would take them for their own.
"""

import errno
import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.domain.claims import has_possible_config
from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Identity, KernelSpec, identity_of
from autotune.domain.record import Record, TimedConfig

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
