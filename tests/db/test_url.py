"""From what a user gives to a database."""

from pathlib import Path

import platformdirs
import pytest
from sqlalchemy import make_url

from autotune.domain.errors import StoreError
from autotune_db.url import FILE_VARIABLE, VARIABLE, parse_database


@pytest.mark.parametrize(
    "text, path",
    [
        ("/a/b.db", "/a/b.db"),
        ("sqlite:////a/b.db", "/a/b.db"),
        ("b.db", "{cwd}/b.db"),
        ("sqlite:///b.db", "{cwd}/b.db"),
        ("sqlite+pysqlite:////a/b.db", "/a/b.db"),
        ("a/b c%20.db", "{cwd}/a/b c%20.db"),
        ("~/b.db", "{home}/b.db"),
        ("C:b", "{cwd}/C:b"),
        ("a?b=c", "{cwd}/a?b=c"),
        ("sqlite:////a%3Fb%20.db", "/a?b .db"),
    ],
)
def test_files(text, path):
    expected = Path(path.format(cwd=Path.cwd(), home=Path.home()))
    database = parse_database(text, env={})
    assert database.path == expected
    assert str(database) == str(expected)
    assert make_url(database.full_url).database == str(expected)
    assert parse_database(database.full_url, env={}) == database


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_servers(scheme):
    database = parse_database(f"{scheme}://user:pass%40word@host:5433/name", env={})
    assert database.path is None
    assert database.full_url == "postgresql+psycopg://user:pass%40word@host:5433/name"
    assert str(database) == "postgresql+psycopg://user:***@host:5433/name"


def test_a_password_among_the_options_is_not_shown():
    database = parse_database("postgresql://host/name?password=secret", env={})
    assert str(database) == "postgresql+psycopg://host/name"
    assert database.full_url.endswith("password=secret")


def test_the_argument_is_before_the_environment():
    env = {VARIABLE: "/env.db"}
    assert parse_database("/arg.db", env).path == Path("/arg.db")
    assert parse_database(None, env).path == Path("/env.db")


@pytest.mark.parametrize("env", [{}, {VARIABLE: ""}, {VARIABLE: "", FILE_VARIABLE: ""}])
def test_the_users_own_file(env, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    expected = Path(platformdirs.user_data_dir("pallas-autotune")) / "autotune.db"
    assert parse_database(None, env).path == expected


def refused(text, env):
    """What is said of it: one line, without the password."""
    with pytest.raises(StoreError) as caught:
        parse_database(text, env)
    said = str(caught.value)
    assert "secret" not in said and "\n" not in said
    return said


@pytest.mark.parametrize(
    "text, part",
    [
        ("mysql://host/name", "mysql databases are not supported: give a file path"),
        ("postgresql+psycopg2://host/name", "are not supported"),
        ("postgresql://user:secret@host:port/name", "is not a database URL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        (":memory:", "in memory"),
        ("sqlite:///a.db?mode=ro", "without options"),
        ("sqlite://a/b.db", "four slashes"),
        ("://x", "is not a database URL"),
        ("a\0.db", "must not"),
    ],
)
def test_what_is_no_database(text, part):
    assert part in refused(text, {})


def _in_file(file, content):
    file.write_bytes(content)
    return {FILE_VARIABLE: str(file)}


@pytest.mark.parametrize(
    "text", ["postgresql://user:secret@host/name", "  postgresql://user:secret@host/name\r\n\n"]
)
def test_a_url_from_a_file(text, tmp_path):
    database = parse_database(None, _in_file(tmp_path / "url", text.encode()))
    assert database.full_url == "postgresql+psycopg://user:secret@host/name"
    assert "secret" not in str(database)


def test_two_variables_are_one_too_many(tmp_path):
    env = _in_file(tmp_path / "url", b"postgresql://user:secret@host/name")
    said = refused(None, {**env, VARIABLE: "postgresql://user:secret@host/name"})
    assert "are both set: keep the file" in said


@pytest.mark.parametrize(
    "content, part",
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xff\xfesecret", "not text in UTF-8"),
        (b"secret", "must hold one line"),
        (b"user:secret@host", "must hold one line"),
        (b"postgresql://user:secret@host/name\nmore", "must hold one line"),
        (b"://secret", "is not a database URL"),
        (b"postgresql://host:secret/name", "is not a database URL"),
        (b"mysql://user:secret@host/name", "mysql databases are not supported"),
    ],
)
def test_a_file_without_a_url(content, part, tmp_path):
    assert part in refused(None, _in_file(tmp_path / "url", content))


@pytest.mark.parametrize(
    "name, part", [("missing", "no such file"), (".", "is a directory"), ("a\0b", "not a path")]
)
def test_a_file_that_cannot_be_read(name, part, tmp_path):
    said = refused(None, {FILE_VARIABLE: f"{tmp_path}/{name}"})
    assert part in said and FILE_VARIABLE in said
