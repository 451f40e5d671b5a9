"""Bearer tokens: only a digest of each is kept."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select, update

from autotune.domain.errors import InvalidInputError
from autotune.domain.token import Token, check_name
from autotune_db import query, rows
from autotune_db.audit import note
from autotune_db.tables import TOKENS
from autotune_db.transaction import Adapter, writes

_PREFIX = "autotune_"  # so that people and scanners recognise one that leaked
_BYTES = 32


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class SqlTokens(Adapter):
    """Bearer tokens. Only digests of the secrets are kept."""

    def create(self, name: str, role: str, expires_at: datetime | None) -> tuple[Token, str]:
        check_name(name)
        secret = _PREFIX + secrets.token_urlsafe(_BYTES)
        now, digest = self._clock(), digest_of(secret)
        given = {"name": name, "role": role, "expires_at": expires_at}
        values = {**given, "digest": digest, "created_at": now}

        def write(connection: Connection, again: bool) -> Token:
            row = connection.execute(_with_digest(digest)).first() if again else None
            if row is None:
                query.one_publisher(connection)  # else two at once could take the same name
                _refuse_namesakes(connection, name, now)
                row = connection.execute(insert(TOKENS).values(values).returning(TOKENS)).one()
                note(connection, now, "token", f"made token {row.id}, {name}, {role}")
            return rows.token_from_row(row)

        return self._work.write(write), secret

    def list(self) -> Sequence[Token]:
        return self._rows(select(TOKENS).order_by(TOKENS.c.id), rows.token_from_row)

    @writes
    def revoke(self, connection: Connection, number: int) -> Token | None:
        row = query.get(connection, TOKENS, number)
        if row is not None and row.revoked_at is None:
            now = self._clock()
            revoked = update(TOKENS).where(TOKENS.c.id == number).values(revoked_at=now)
            row = connection.execute(revoked.returning(TOKENS)).one()
            note(connection, now, "token", f"revoked token {row.id}, {row.name}")
        return rows.token_from_row(row) if row else None

    def find(self, secret: str) -> Token | None:
        token = self._first(_with_digest(digest_of(secret)), rows.token_from_row)
        return token if token and token.is_valid(self._clock()) else None

    def valid(self) -> Mapping[str, Token]:
        """By the digests of their secrets."""
        statement = select(TOKENS).where(TOKENS.c.revoked_at.is_(None))
        tokens = self._rows(statement, lambda row: (str(row.digest), rows.token_from_row(row)))
        now = self._clock()
        return {digest: token for digest, token in tokens if token.is_valid(now)}


def _with_digest(digest: str) -> Select[*tuple[Any, ...]]:
    return select(TOKENS).where(TOKENS.c.digest == digest)


def _refuse_namesakes(connection: Connection, name: str, now: datetime) -> None:
    for row in connection.execute(select(TOKENS).where(func.lower(TOKENS.c.name) == name.lower())):
        if rows.token_from_row(row).is_valid(now):
            raise InvalidInputError(
                f"token {row.id} has the name {name} already: take another, or revoke it first"
            )
