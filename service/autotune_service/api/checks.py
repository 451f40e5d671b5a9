"""``GET /v1/checks``: what became of published configs under other toolchains or on other chips."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from autotune.domain.browsing import CheckFilter
from autotune.domain.chip import Chip
from autotune.domain.codec import to_data
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain
from autotune.wording.checks import action, finding
from autotune_service.api.uploads import Name
from autotune_service.api.validators import IfNoneMatch, tagged
from autotune_service.dependencies import ERRORS, NOT_MODIFIED, ask, store

router = APIRouter(prefix="/v1", tags=["registry"])

Cursor = Annotated[str, Field(pattern=r"^[0-9]{1,15}$")]
ToolchainName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,200}(,[A-Za-z0-9_.+-]{1,200}){2}$")
]


class CheckQuery(BaseModel):
    """``made_with``, ``toolchain``: the records' own, and the one that they were checked with, each
    as its versions of jax, jaxlib and libtpu."""

    model_config = ConfigDict(extra="forbid")

    kernel: Name | None = None
    chip: Chip | None = None
    made_with: ToolchainName | None = Field(None, examples=["0.10.2,0.10.2,0.0.42.1"])
    toolchain: ToolchainName | None = Field(None, examples=["0.12.0.1,0.12.0,0.0.44"])
    verdict: CheckVerdict | None = None
    limit: int = Field(50, ge=1, le=1_000)
    cursor: Cursor | None = None


class CheckData(BaseModel):
    """``finding`` and ``action``: sentences for people; ``check`` is what they were made from."""

    number: int
    finding: str
    action: str
    check: dict[str, Any]


class Checks(BaseModel):
    """``next``: the ``cursor`` of the next page; null where this is the last one."""

    checks: list[CheckData]
    next: Cursor | None


@router.get("/checks", response_model=Checks, responses={304: NOT_MODIFIED, **ERRORS})
async def checks(
    request: Request, asked: Annotated[CheckQuery, Query()], if_none_match: IfNoneMatch = None
) -> Response:
    """The last ones first. A config that is broken, or needs a limit, is no answer of a lookup."""
    only = CheckFilter(
        kernel=asked.kernel,
        chip=asked.chip,
        made_with=_toolchain(asked.made_with),
        toolchain=_toolchain(asked.toolchain),
        verdict=asked.verdict,
    )
    before = None if asked.cursor is None else int(asked.cursor)
    found = await ask(request, store(request).browse.checks, only, before, asked.limit + 1)
    page = Checks(
        checks=[
            CheckData(
                number=one.number,
                finding=finding(one.check),
                action=action(one.check),
                check=to_data(one.check),
            )
            for one in found[: asked.limit]
        ],
        next=str(found[asked.limit - 1].number) if len(found) > asked.limit else None,
    )
    content = page.model_dump_json().encode()
    return tagged(if_none_match, content, "application/json", {"Cache-Control": "no-cache"})


def _toolchain(name: str | None) -> Toolchain | None:
    if name is None:
        return None
    jax, jaxlib, libtpu = name.split(",")
    return Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu)
