"""``GET /v1/checks``: what became of published configs under other toolchains or on other chips."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from autotune.domain.browsing import CheckFilter
from autotune.domain.codec import to_data
from autotune.domain.key import Chip, Toolchain
from autotune.domain.record import CheckVerdict
from autotune.wording.checks import action, finding, in_words
from autotune_service.api.forms import Name
from autotune_service.api.questions import toolchain_of
from autotune_service.api.reading import next_of, number_of
from autotune_service.api.schema import Cursor, Page
from autotune_service.api.validators import IfNoneMatch, tagged
from autotune_service.dependencies import ERRORS, KNOWN_PARAMETERS, NOT_MODIFIED, Limit, ask, store

router = APIRouter(prefix="/v1", tags=["registry"], dependencies=[KNOWN_PARAMETERS])

ToolchainName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,200}(,[A-Za-z0-9_.+-]{1,200}){2}(,[^\x00-\x1f\x7f]+)?$")
]


class CheckData(BaseModel):
    """``finding`` and ``action``: sentences for people; ``check`` is what they were made from."""

    number: int
    finding: str
    action: str
    check: dict[str, Any]


class Checks(Page):
    checks: list[CheckData]


@router.get("/checks", response_model=Checks, responses={304: NOT_MODIFIED, **ERRORS})
async def checks(
    request: Request,
    kernel: Name | None = None,
    chip: Chip | None = None,
    made_with: Annotated[ToolchainName | None, Query(examples=["0.10.2,0.10.2,0.0.42.1"])] = None,
    toolchain: Annotated[ToolchainName | None, Query(examples=["0.12.0.1,0.12.0,0.0.44"])] = None,
    verdict: CheckVerdict | None = None,
    limit: Limit = 50,
    cursor: Cursor | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The last ones first. A config that is broken, or needs a limit, is no answer of a lookup.
    ``made_with``, ``toolchain``: the records' own, and the one that they were checked with, each as
    its versions of jax, jaxlib and libtpu, and where it has any its compiler options."""
    only = CheckFilter(
        kernel=kernel,
        chip=chip,
        made_with=_toolchain(made_with),
        toolchain=_toolchain(toolchain),
        verdict=verdict,
    )
    page = await ask(request, store(request).browse.checks, only, number_of(cursor), limit + 1)
    data = [
        CheckData(
            number=row.number,
            finding=finding(row.check),
            action=action(row.check),
            check=to_data(in_words(row.check)),
        )
        for row in page[:limit]
    ]
    content = Checks(checks=data, next=next_of(page, limit)).model_dump_json().encode()
    return tagged(if_none_match, content, "application/json", {"Cache-Control": "no-cache"})


def _toolchain(name: str | None) -> Toolchain | None:
    if name is None:
        return None
    jax, jaxlib, libtpu, *options = name.split(",", 3)
    return toolchain_of(jax=jax, jaxlib=jaxlib, libtpu=libtpu, options="".join(options))
