"""``autotune check --against`` with Git and the real compiler: what a change does to kernels."""

import json
from xml.etree import ElementTree

import pytest

from tests.samples.repository import SAMPLE, repository
from tests.servers.commands import autotune, autotune_here

SOURCE = SAMPLE.read_text()
BODY = (
    "    out[...] = jnp.maximum(jnp.dot(x[...], y[...], preferred_element_type=jnp.float32), 0.0)\n"
)
MORE_WORK = BODY.replace("jnp.dot(x", "jnp.dot(jnp.sin(x").replace("[...], y", "[...]), y")
ASKED = ("k.py:PASSES_LIMIT", "--shape", "1024x1024x1024", "--chip", "v5e")


def check(tree, *options, **environment):
    done = autotune("check", *(options or ASKED), "--json", cwd=tree, env=environment)
    assert done.stdout.startswith("["), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def tree(tmp_path):
    assert BODY in SOURCE
    return repository(tmp_path / "repository", {"k.py": SOURCE})


def test_what_changes_nothing_raises_nothing(tree):
    quiet = SOURCE.replace("def _kernel(x", "# said better\ndef _work(x").replace(
        "_kernel,", "_work,"
    )
    (tree / "k.py").write_text(quiet)
    code, (checks,) = check(tree, *ASKED, "--against", "main", "--fail-on", "slower:1%,broken,vmem")
    assert (code, checks["verdict"]) == (0, "same")
    assert checks["before_us"] == checks["after_us"] > 0
    assert checks["fingerprint"] != checks["key"]["fingerprint"]


def test_what_slows_a_kernel_is_found_and_reported(tree):
    (tree / "k.py").write_text(SOURCE.replace(BODY, MORE_WORK))
    reports = "--markdown", str(tree / "c.md"), "--junit", str(tree / "c.xml")
    code, (checks,) = check(tree, *ASKED, "--against", "main", *reports)
    assert (code, checks["verdict"]) == (1, "slower")
    suite = ElementTree.parse(tree / "c.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "| slower | fused\\_passes\\_limit 1024x1024x1024" in (tree / "c.md").read_text()


def test_what_makes_a_result_wrong_is_found(tree):
    (tree / "k.py").write_text(SOURCE.replace(BODY, BODY.replace(", 0.0)", ", 0.0) + 1.0")))
    reports = "--verify", "--fail-on", "slower", "--markdown", str(tree / "c.md")
    code, (checks,) = check(tree, *ASKED, "--against", "main", *reports)
    assert (code, checks["verdict"], checks["winner"]["kind"]) == (1, "wrong", "wrong result")
    assert "| wrong | fused" in (tree / "c.md").read_text()
    (tree / "k.py").write_text(SOURCE + "# more\n")
    code, (checks,) = check(tree, *ASKED, "--against", "main", "--verify")
    assert (code, checks["verdict"], checks["verified"]) == (0, "same", True)


def test_what_a_kernel_imports_is_of_its_revision(tmp_path):
    """The declaration is in a folder of its own, the kernel in a package that is installed from
    the working tree: the fingerprint does not see it."""
    tree = repository(
        tmp_path / "repository",
        {
            "src/mypkg/__init__.py": "",
            "src/mypkg/kernels.py": SOURCE,
            "tune/k.py": "from mypkg.kernels import PASSES_LIMIT\n",
        },
    )
    (tree / "src/mypkg/kernels.py").write_text(SOURCE.replace(BODY, MORE_WORK))
    asked = ("tune/k.py:PASSES_LIMIT", *ASKED[1:], "--against", "main")
    code, (checks,) = check(tree, *asked, PYTHONPATH=str(tree / "src"))
    assert (code, checks["verdict"]) == (1, "slower")


DECORATED = SAMPLE.with_name("decorated.py").read_text()
SLOWER = DECORATED.replace("(x_ref[...] * w", "(jnp.sin(jnp.sin(x_ref[...])) * w")
CALL = "x=f32[512,1024],w=f32[1,1024]"


def test_calls_of_a_decorated_function_are_compared(tmp_path):
    """First a call that is named, then the tuned ones of a bundle, whose name nobody says."""
    tree = repository(tmp_path / "repository", {"k.py": DECORATED})
    asked = ("search", "k.py:scaled", "--args", CALL, "--chip", "v5e", "--trials", "2")
    done = autotune(*asked, cwd=tree)
    assert done.returncode == 0, done.stderr
    assert autotune("export", "tuned.bundle", cwd=tree).returncode == 0
    (tree / "k.py").write_text(SLOWER)
    against = ("k.py:scaled", "--against", "main")
    code, (checks,) = check(tree, *against, "--args", CALL, "--chip", "v5e")
    assert (code, checks["verdict"]) == (1, "slower")
    code, checks = check(tree, *against, "--bundle", "tuned.bundle")
    assert (code, {row["verdict"] for row in checks}) == (1, {"slower"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--against", "nowhere", *ASKED), "is no revision of"),
        (("--against", "main", "k.py:PASSES_LIMIT"), "there is no problem to compare"),
        (("--against", "main", "--shape", "8x8x8"), "name both"),
        (("--args", "x=f32[8]", "k.py:PASSES_LIMIT"), "are for --against"),
        (("--against", "main", "--retune", *ASKED), "--retune is for what is published"),
        (("--shape", "8x8x8", "k.py:PASSES_LIMIT"), "are for --against"),
        (("--against", "main"), "no installed kernel has its source in"),
        (("--against", "http://127.0.0.1:9", *ASKED[:1]), "cannot be used"),
    ],
)
def test_what_cannot_be_compared_says_why(tree, options, said):
    done = autotune_here("check", *options, cwd=tree)
    assert done.returncode == 2 or said == "cannot be used", done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
