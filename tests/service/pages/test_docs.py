"""The reference of the HTTP interface: Swagger UI from our own files."""

import hashlib
from pathlib import Path

import pytest

import autotune_service.pages
from tests.servers.service import Running

STATIC = Path(autotune_service.pages.__file__).parent / "static"


@pytest.mark.parametrize(
    ("name", "licence"), [("swagger-ui", "Apache License"), ("plotly", "MIT License")]
)
def test_files_of_others_are_as_they_were_published(name: str, licence: str) -> None:
    folder = STATIC / name
    sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    for file, digest in sums.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
    assert set(sums) == {file.name for file in folder.iterdir()} - {"SHA256SUMS"}
    assert licence in (folder / "LICENSE").read_text()


@pytest.mark.parametrize("name", ["swagger-ui-bundle.js", "swagger-ui.css", "docs.js"])
def test_the_page_loads_nothing_from_elsewhere(service: Running, name: str) -> None:
    status, headers, page = service.raw("GET", "/docs")
    assert status == 200 and "script-src 'self'" in headers["content-security-policy"]
    (address,) = (
        part for part in page.decode().split('"') if part.endswith(name) and "/static/" in part
    )
    assert address.startswith("/static/") and service.raw("GET", address)[0] == 200
