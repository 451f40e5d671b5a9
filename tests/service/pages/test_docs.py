"""The reference of the HTTP interface: Swagger UI from our own files."""

import hashlib
from pathlib import Path

import pytest

import autotune_service.pages
from tests.servers.service import Running

FOLDER = Path(autotune_service.pages.__file__).parent / "static" / "swagger-ui"


def test_its_files_are_as_they_were_published_and_have_their_licence() -> None:
    named = [line.split() for line in (FOLDER / "SHA256SUMS").read_text().splitlines()]
    for digest, name in named:
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name
    assert {name for _, name in named} == {file.name for file in FOLDER.iterdir()} - {"SHA256SUMS"}
    assert "Apache License" in (FOLDER / "LICENSE").read_text()


@pytest.mark.parametrize("name", ["swagger-ui-bundle.js", "swagger-ui.css", "docs.js"])
def test_the_page_loads_nothing_from_elsewhere(service: Running, name: str) -> None:
    status, headers, page = service.raw("GET", "/docs")
    assert status == 200 and "script-src 'self'" in headers["content-security-policy"]
    (address,) = (
        part for part in page.decode().split('"') if part.endswith(name) and "/static/" in part
    )
    assert address.startswith("/static/") and service.raw("GET", address)[0] == 200
