"""Profiles of trials by line of their source, each as it was made last."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from autotune.domain.codec import from_data, to_data
from autotune_db import query
from autotune_db.rows import AnyRow
from autotune_db.tables import PROFILES, from_text, to_text
from autotune_db.transaction import Adapter, writes

if TYPE_CHECKING:
    from autotune.estimating.simulator.drawing.picture import ConfigProfile


class SqlProfiles(Adapter):
    """By the number of the trial in the whole database."""

    @writes
    def save(self, connection: Connection, trial_id: int, profile: "ConfigProfile") -> None:
        values = {"content": to_text(to_data(profile)), "created_at": self._clock()}
        query.upsert(connection, PROFILES, {"trial_id": trial_id}, values)

    def find(self, trial_ids: Sequence[int]) -> Mapping[int, "ConfigProfile"]:
        wanted = select(PROFILES).where(PROFILES.c.trial_id.in_(trial_ids))
        return dict(self._rows(wanted, lambda row: (int(row.trial_id), profile_from_row(row))))


def profile_from_row(row: AnyRow) -> "ConfigProfile":
    from autotune.estimating.simulator.drawing.picture import ConfigProfile  # no lookup needs it

    return from_data(ConfigProfile, from_text(row.content))
