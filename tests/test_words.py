"""Public names and sentences keep to the words of the field, which docs/words.md explains; sentences are short and true."""

import ast
import contextlib
import importlib
import io

import house
import plain_words
import pytest
from empty_names import empty_words
from rendered_words import DEVELOPERS, MACHINES, PAGES, predicted_errors, rendered

from workloads import help_screen

# Empty names that some public names still have; tests/style_allowance.toml counts them. Nothing is added here.
STILL_PUBLIC = {"apart", "each", "feeding", "held", "kept", "of", "seen", "there", "way"}


def public(tree: ast.Module) -> list[str]:
    """The functions and classes that a module defines for others."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def test_no_public_name_has_an_empty_word():
    modules = house.modules()
    names = {f"{module}: {name}": name for module, path in modules.items() for name in public(house.tree(path))}
    names |= {module: module.rpartition(".")[2] for module in modules}
    empty = {full: empty_words(name) - STILL_PUBLIC for full, name in names.items()}
    assert not {full: found for full, found in empty.items() if found}
    assert all(empty_words(name) for name in ("told_apart", "Asked", "own_fields", "Beside", "byOwn", "of_keras", "of"))
    assert not any(empty_words(name) for name in ("backends", "Ownership", "founded", "unfold", "layers_of"))


def test_the_glossary_has_each_term_once():
    text = (house.ROOT / "docs" / "words.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|") and "---" not in line]
    terms = [row[1].strip() for row in rows if row[1].strip() != "term"]
    assert 30 <= len(terms) <= 40 and len(set(terms)) == len(terms)
    assert all(len(row) == 4 and row[2].strip().endswith(".") for row in rows if row[1].strip() != "term")


# ---------------------------------------------------------------- sentences


def stored_rows() -> list:
    """Machines and predictions as cases; those with thousands of rows are slow."""
    large = ("nvidia-h200", "predictions")
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in large else name for name in [*MACHINES, "predictions"]
    ]


@pytest.mark.parametrize("machine", stored_rows())
def test_every_rendered_sentence_is_short_and_plain(machine):
    said = predicted_errors() if machine == "predictions" else rendered(machine)
    assert not [fault for text in said for fault in plain_words.faults(text)]
    lengths = [plain_words.words(sentence) for text in said for sentence in plain_words.split(text)]
    assert not lengths or sum(lengths) / len(lengths) <= plain_words.MEAN_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_are_in_the_words_of_the_field(page):
    every = plain_words.prose(page.read_text(encoding="utf-8"))
    found = [fault for text in every for fault in plain_words.faults(text, page.name not in DEVELOPERS)]
    assert not [fault for fault in found if page.name not in DEVELOPERS or "the model's name" not in fault]


@pytest.mark.parametrize("command", sorted(help_screen.commands()))
def test_help_is_in_the_words_of_the_field(command):
    out, path = io.StringIO(), house.ROOT.joinpath(*command.split("."))
    module = importlib.import_module(f"{command}.command" if (path / "command.py").exists() else command)
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        (module if hasattr(module, "main") else importlib.import_module(f"{command}.__main__")).main(["--help"])
    text = " ".join(out.getvalue().split())
    assert text and not [fault for fault in plain_words.faults(text, False) if "the model's name" not in fault]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The GPU is 3 times as fast.", "3.2x faster"),
        ("A call takes 12 us.", "µs"),
        ("It saves -3.1 ms a step.", "negative time"),
        ("It saves 3 ms [-2, 8].", "impossible range"),
        ("A step takes 12.345 ms.", "too many digits"),
        ("One takes 1 s, 2 s, 3 s or 4 s.", "4 numbers of 3"),
        ("The GPU (new) wins here (always).", "2 brackets of 1"),
        (" ".join(["word"] * 26), "26 words of 25"),
        ("Training cifar10-cnn (S0) takes long.", "the model's name"),
    ],
)
def test_each_fault_of_a_sentence_is_seen(text, fault):
    assert any(fault in found for found in plain_words.faults(text))


@pytest.mark.parametrize(
    "text",
    [
        "Square float32 products, resident on the GPU: the GPU wins from about n = 102 (95 to 133).",
        "CIFAR-10 CNN, batch 32, 50,000 samples, 10 epochs: 61 s on the GPU, 126 s on the CPU, 2.1x faster.",
        "Break-even after 65 epochs [40, 90]: `python -m analysis.explain --case S0` says more.",
    ],
)
def test_names_sizes_and_commands_are_no_claims(text):
    assert plain_words.faults(text) == []
