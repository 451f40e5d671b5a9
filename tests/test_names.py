"""One class name, one meaning: whoever searches for a name finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("autotune", "kernels", "db", "service")


def defined():
    """Each class with the files that define it."""
    found = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(REPOSITORY)))
    return found


def test_a_class_name_has_one_meaning_in_the_whole_repository():
    found = defined()
    assert len(found) > 200
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
