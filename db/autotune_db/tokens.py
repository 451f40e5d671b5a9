"""Bearer tokens: only a digest of each is kept."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.token import Token, check_name
from autotune.errors import InvalidInputError
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.audit import note
from autotune_db.query import MAX_ID
from autotune_db.tables import TokenRow

_PREFIX = "autotune_"  # so that people and scanners recognise one that leaked
_BYTES = 32


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class SqlTokens(Adapter):
    """Implements ``autotune.ports.Tokens``."""

    def create(self, name: str, role: str, expires_at: datetime | None) -> tuple[Token, str]:
        check_name(name)
        secret = _PREFIX + secrets.token_urlsafe(_BYTES)
        made = {
            "name": name,
            "role": role,
            "digest": digest_of(secret),
            "created_at": self._clock(),
            "expires_at": expires_at,
        }

        def write(session: Session, again: bool) -> Token:
            row = session.scalar(_with(made["digest"])) if again else None
            if row is None:
                query.one_publisher(session)  # else two at once could take the same name
                _refuse_namesakes(session, name, self._clock())
                row = TokenRow(**made)
                session.add(row)
                session.flush()
                note(session, self._clock(), "token", f"made token {row.id}, {name}, {role}")
            return rows.token_from_row(row)

        return self._work.write(write), secret

    def list(self) -> Sequence[Token]:
        statement = select(TokenRow).order_by(TokenRow.id)
        return self._work.read(lambda s: list(map(rows.token_from_row, s.scalars(statement))))

    def revoke(self, number: int) -> Token | None:
        def write(session: Session, _: bool) -> Token | None:
            row = session.get(TokenRow, number)
            if row is None:
                return None
            if row.revoked_at is None:
                row.revoked_at = self._clock()
                note(session, row.revoked_at, "token", f"revoked token {row.id}, {row.name}")
            return rows.token_from_row(row)

        return self._work.write(write) if 0 < number <= MAX_ID else None

    def find(self, secret: str) -> Token | None:
        def read(session: Session) -> Token | None:
            row = session.scalar(_with(digest_of(secret)))
            return rows.token_from_row(row) if row else None

        found = self._work.read(read)
        return found if found and found.is_valid(self._clock()) else None

    def valid(self) -> Mapping[str, Token]:
        statement = select(TokenRow).where(TokenRow.revoked_at.is_(None))

        def read(session: Session) -> Mapping[str, Token]:
            return {row.digest: rows.token_from_row(row) for row in session.scalars(statement)}

        now = self._clock()
        return {d: token for d, token in self._work.read(read).items() if token.is_valid(now)}


def _with(digest: object):  # type: ignore[no-untyped-def]
    return select(TokenRow).where(TokenRow.digest == digest)


def _refuse_namesakes(session: Session, name: str, now: datetime) -> None:
    same = select(TokenRow).where(TokenRow.name == name)
    for row in session.scalars(same):
        if rows.token_from_row(row).is_valid(now):
            raise InvalidInputError(
                f"token {row.id} has the name {name} already: take another, or revoke it first"
            )
