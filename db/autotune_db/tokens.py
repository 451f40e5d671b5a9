"""Bearer tokens: only a digest of each is kept."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, insert, select, update

from autotune.domain.errors import InvalidInputError
from autotune.domain.token import Token, check_name
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.audit import note
from autotune_db.query import MAX_ID
from autotune_db.tables import TOKENS

_PREFIX = "autotune_"  # so that people and scanners recognise one that leaked
_BYTES = 32


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class SqlTokens(Adapter):
    """Bearer tokens. Only digests of the secrets are kept."""

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

        def write(connection: Connection, again: bool) -> Token:
            row = connection.execute(_with_digest(str(made["digest"]))).first() if again else None
            if row is None:
                query.one_publisher(connection)  # else two at once could take the same name
                _refuse_namesakes(connection, name, self._clock())
                row = connection.execute(insert(TOKENS).values(made).returning(TOKENS)).one()
                note(connection, self._clock(), "token", f"made token {row.id}, {name}, {role}")
            return rows.token_from_row(row)

        return self._work.write(write), secret

    def list(self) -> Sequence[Token]:
        statement = select(TOKENS).order_by(TOKENS.c.id)
        return self._work.read(lambda s: list(map(rows.token_from_row, s.execute(statement))))

    def revoke(self, number: int) -> Token | None:
        def write(connection: Connection, _: bool) -> Token | None:
            row = query.get(connection, TOKENS, number)
            if row is None:
                return None
            if row.revoked_at is None:
                now = self._clock()
                revoked = update(TOKENS).where(TOKENS.c.id == number).values(revoked_at=now)
                row = connection.execute(revoked.returning(TOKENS)).one()
                note(connection, now, "token", f"revoked token {row.id}, {row.name}")
            return rows.token_from_row(row)

        return self._work.write(write) if 0 < number <= MAX_ID else None

    def find(self, secret: str) -> Token | None:
        def read(connection: Connection) -> Token | None:
            row = connection.execute(_with_digest(digest_of(secret))).first()
            return rows.token_from_row(row) if row else None

        found = self._work.read(read)
        return found if found and found.is_valid(self._clock()) else None

    def valid(self) -> Mapping[str, Token]:
        statement = select(TOKENS).where(TOKENS.c.revoked_at.is_(None))

        def read(connection: Connection) -> Mapping[str, Token]:
            return {row.digest: rows.token_from_row(row) for row in connection.execute(statement)}

        now = self._clock()
        return {d: token for d, token in self._work.read(read).items() if token.is_valid(now)}


def _with_digest(digest: str) -> Select[Any]:
    return select(TOKENS).where(TOKENS.c.digest == digest)


def _refuse_namesakes(connection: Connection, name: str, now: datetime) -> None:
    same = select(TOKENS).where(TOKENS.c.name == name)
    for row in connection.execute(same):
        if rows.token_from_row(row).is_valid(now):
            raise InvalidInputError(
                f"token {row.id} has the name {name} already: take another, or revoke it first"
            )
