"""Public names keep to the words of the field, which docs/words.md explains."""

import ast
import re

import house
import pytest

# Words that name nothing, or say in a private way what the field has a word for. The list is closed.
RETIRED = {
    *("asked", "found", "told", "made", "own", "ends", "passing", "strange", "beside"),
    *("foretold", "fed", "holding", "gathered", "occasions"),
}


def words(name: str) -> set[str]:
    """The words of a name in either style: `by_own_epochs`, `OwnEpochs`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def public(tree: ast.Module) -> list[str]:
    """The functions and classes that a module defines for others."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def test_no_public_name_has_a_retired_word():
    modules = house.modules()
    names = {f"{module}: {name}": name for module, path in modules.items() for name in public(house.tree(path))}
    names |= {module: module.rpartition(".")[2] for module in modules}
    assert not {full: sorted(found) for full, name in names.items() if (found := words(name) & RETIRED)}


@pytest.mark.parametrize("name", ["told_apart", "Asked", "own_fields", "Beside", "byOwn"])
def test_a_retired_word_is_seen_in_either_style(name):
    assert words(name) & RETIRED


@pytest.mark.parametrize("name", ["backends", "Ownership", "founded", "unfold"])
def test_a_word_inside_another_is_none(name):
    assert not words(name) & RETIRED


def test_the_glossary_has_at_most_forty_terms_each_once():
    text = (house.ROOT / "docs" / "words.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|") and "---" not in line]
    terms = [row[1].strip() for row in rows if row[1].strip() != "term"]
    assert 30 <= len(terms) <= 40 and len(set(terms)) == len(terms)
    assert all(len(row) == 4 and row[2].strip().endswith(".") for row in rows if row[1].strip() != "term")
