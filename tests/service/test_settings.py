"""Settings: from flags and environment, and the same in the documentation."""

import re

import pytest

from autotune.domain.errors import InvalidInputError
from autotune_service.settings import Settings, from_environment, to_environment


def test_flags_win_over_the_environment_and_that_over_defaults():
    environment = {"AUTOTUNE_SERVICE_PORT": "1", "AUTOTUNE_SERVICE_WORKERS": "2"}
    settings = from_environment(environment, port=3)
    assert (settings.port, settings.workers, settings.host) == (3, 2, Settings().host)


def test_there_and_back():
    chosen = Settings(port=1, refresh_s=0.5, closed=True, writes_per_second=0)
    assert from_environment(to_environment(chosen)) == chosen
    assert from_environment({}) == Settings()


@pytest.mark.parametrize(
    "variable, text, says",
    [
        ("PORT", "http", "is not a whole number"),
        ("PORT", "70000", "from 0 to 65535"),
        ("WORKERS", "0", "from 1 to 64"),
        ("REFRESH_S", "soon", "is not a number"),
        ("REFRESH_S", "0", "from 0.01"),
        ("REFRESH_S", "nan", "from 0.01"),
        ("CLOSED", "perhaps", "is not true or false"),
    ],
)
def test_bad_ones_are_a_sentence(variable, text, says):
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        from_environment({f"AUTOTUNE_SERVICE_{variable}": text})
