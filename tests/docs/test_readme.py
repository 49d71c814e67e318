"""The README and the pages it leads to: short, complete, with commands that exist."""

from __future__ import annotations

import ast
import re

import pytest
from pages import EXECUTED, PAGES, ROOT, commands, python_blocks

from driftwise.cli import main as cli
from driftwise.config.flags import split_part_options
from driftwise.config.schema import PARTS

README = PAGES["README.md"]
OLD_NAME = {
    "src/driftwise/runs/checkpoint.py",  # reads checkpoints of the old name
    "src/driftwise/paths.py",  # finds data folders of the old name
    "docs/reference/migration.md",
    "CHANGELOG.md",
}
"""where the project's old name may stand"""


def test_the_readme_fits_on_four_screens() -> None:
    assert len(README.splitlines()) <= 220


def test_the_readme_leads_to_every_kind_of_page() -> None:
    links = set(re.findall(r"\]\((docs/[\w/-]+\.md)\)", README))
    assert links >= {page for page in PAGES if page.endswith("/index.md") and "/api/" not in page}


def test_the_tree_in_contributing_names_every_package() -> None:
    tree = PAGES["CONTRIBUTING.md"].partition("    src/driftwise/\n")[2].partition("\n\n")[0]
    listed = set(re.findall(r"^      (\w+)/", tree, re.MULTILINE))
    packages = {file.parent.name for file in (ROOT / "src/driftwise").glob("*/__init__.py")}
    assert listed == packages
    table = (
        PAGES["docs/explanations/architecture.md"]
        .partition("## Packages\n")[2]
        .partition("\n## ")[0]
    )
    assert set(re.findall(r"`(\w+)/`", table)) == packages


def test_no_file_name_has_two_meanings() -> None:
    files = [file.name for file in (ROOT / "src/driftwise").rglob("*.py")]
    same = {name for name in files if files.count(name) > 1}
    # One meaning everywhere: the base class, and the settings, of a package.
    assert same <= {"__init__.py", "base.py", "settings.py"}


def test_there_are_two_commands_to_begin_with() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^    make {target}\b", README, re.MULTILINE)
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_every_command_parses(page: str) -> None:
    for words in commands(page):
        rest, _ = split_part_options(words, PARTS)
        cli.parser().parse_args(rest)


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_is_executed_by_a_test(page: str) -> None:
    import test_examples_in_docs  # noqa: F401  # declares what it executes
    import test_tutorials  # noqa: F401

    assert sorted(EXECUTED[page]) == sorted(python_blocks(page))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGES[page]):
        if not target.startswith("https://"):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_path_of_a_batch_names_files_and_functions_that_exist() -> None:
    text = PAGES["docs/explanations/architecture.md"]
    steps = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| (.+) \|$", text, re.MULTILINE)
    assert len(steps) > 40
    for file, what in steps:
        tree = ast.parse((ROOT / "src/driftwise" / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            methods = (node for node in kind.body if isinstance(node, ast.FunctionDef))
            names |= {f"{kind.name}.{method.name}" for method in methods}
        named = re.findall(r"`([A-Z]\w+\.\w+|\w+)`", what.partition(":")[0].partition(" (")[0])
        assert set(named) <= names, (file, named)
    run = text.partition("## A batch in `driftwise.run`")[2].partition("\n## ")[0]
    files = set(re.findall(r"^\| \d+ \| `([\w/]+\.py)`", run, re.MULTILINE))
    assert len(files) <= 40
    assert f"These are {len(files)} files." in run


def test_the_old_name_is_left_only_where_old_folders_are_read_and_explained() -> None:
    text = ("README.md", "CONTRIBUTING.md", "pyproject.toml", "Makefile", "CITATION.cff")
    files = [ROOT / name for name in text]
    for folder, pattern in (
        ("src", "*.py"),
        ("src", "*.html"),
        ("docs", "*.md"),
        ("examples", "*.py"),
    ):
        files += (ROOT / folder).rglob(pattern)
    found = {
        str(file.relative_to(ROOT))
        for file in files
        if re.search("recollect(?!ion)", file.read_text(), re.IGNORECASE)
    }
    # The README's one line is the link to the migration note.
    assert [line for line in README.splitlines() if "recollect" in line.lower()] == [
        "| [docs/reference/migration.md](docs/reference/migration.md) | from `recollect` to `driftwise` |"
    ]
    assert found - {"README.md"} <= OLD_NAME
