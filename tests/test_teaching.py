"""Kernels teach: a kernel's docstring is its idea, and a CUDA source begins with a drawing, what it takes and its source."""

import ast
import re

import house
import ladder_shares
import pytest

from kernels import registry
from kernels.cuda import loader

CUDA_SOURCES = sorted(path for path in loader.FOLDER.rglob("*.cu*") if path.suffix in (".cu", ".cuh"))
WIDEST_DRAWING = 100
#: A product of constants in capitals and numbers, and the number that it is said to be.
STATED = re.compile(r"((?:[A-Z0-9_]+|[()])(?: ?(?:[A-Z0-9_]+|[()]| [-+*/] ))*) = ([\d,]+)\b")


def variant(decorator: ast.expr) -> str:
    """The name that a decorator gives its kernel in the function's place; "" if it gives none."""
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return next((ast.literal_eval(word.value) for word in keywords if word.arg == "variant"), "")


def kernel_functions() -> dict[str, ast.FunctionDef]:
    """The functions with the decorator `kernel` by the kernel's name, whether its library is installed or not."""
    functions = {}
    for operation in house.operations():
        for path in sorted((registry.FOLDER / operation).glob("[!_]*.py")):
            for node in house.tree(path).body:
                if not isinstance(node, ast.FunctionDef):
                    continue
                decorators = {ast.unparse(decorator).partition("(")[0]: decorator for decorator in node.decorator_list}
                if "kernel" in decorators:
                    name = variant(decorators["kernel"]) or node.name
                    functions[f"{operation}/{path.stem.partition('_')[0]}/{name}"] = node
    return functions


def test_the_docstring_of_every_kernel_is_its_idea():
    functions = kernel_functions()
    for operation in house.operations():
        assert set(registry.ladder(operation)) <= set(functions)
    assert len(functions) > 90
    for name, node in functions.items():
        idea = ast.get_docstring(node) or ""
        assert idea.endswith("."), f"{name} has no sentence as its docstring"
        assert len(idea.split()) >= 8, f"{name}: {idea!r} is no idea"


def head(text: str) -> list[str]:
    """The comment that a source begins with; a .cu without its first line, which names architectures."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line)
    return lines[1:] if lines and re.fullmatch(r"//( sm_\w+)+", lines[0]) else lines


def faults_of_head(lines: list[str]) -> list[str]:
    """What a head lacks: an idea, a drawing that is not too wide, what it takes, its source."""
    first_taken = next((i for i, line in enumerate(lines) if line.startswith("// Takes")), len(lines))
    drawing = [line for line in lines[:first_taken] if line.startswith("//    ")]
    faults = []
    if not lines or not re.match(r"// \w", lines[0]):
        faults.append("no idea")
    if len([line for line in drawing if re.search(r"[|\[<>]|--", line)]) < 2:
        faults.append("no drawing")
    if any(len(line) > WIDEST_DRAWING for line in drawing):
        faults.append("a drawing that is too wide")
    if first_taken == len(lines):
        faults.append("nothing about registers and shared memory")
    if not any(line.startswith("// Source: ") for line in lines[first_taken:]):
        faults.append("no source")
    return faults


def constants(text: str) -> dict[str, int]:
    """The values of a source's whole-number constants, as it defines them by default."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        defined = re.match(r"#define (\w+) (\d+)\b", line)
        computed = re.match(r"constexpr int (\w+) = ([\w()*/+ -]+);", line)
        if defined:
            values.setdefault(defined[1], int(defined[2]))
        elif computed and set(re.findall(r"[A-Za-z_]\w*", computed[2])) <= values.keys():
            values[computed[1]] = evaluated(computed[2], values)
    return values


def evaluated(expression: str, values: dict[str, int]) -> int:
    """A whole-number expression of C in those constants."""
    return eval(expression.replace("/", "//"), {"__builtins__": {}}, values)


@pytest.mark.parametrize("path", CUDA_SOURCES, ids=lambda path: str(path.relative_to(loader.FOLDER)))
def test_a_cuda_source_begins_with_idea_and_drawing(path):
    text = path.read_text(encoding="utf-8")
    assert faults_of_head(head(text)) == []
    file = path.relative_to(loader.FOLDER).with_suffix("")
    whole = loader.source(str(file)) if path.suffix == ".cu" else text
    for expression, stated in STATED.findall("\n".join(head(text)).partition("// Takes")[2]):
        assert evaluated(expression, constants(whole)) == int(stated.replace(",", "")), expression


def test_what_a_head_lacks_is_named():
    whole = ["// A tile a block.", "//", "//    +--+", "//    |  |", "//", "// Takes: nothing.", "// Source: a book."]
    assert faults_of_head(whole) == []
    assert faults_of_head(whole[:2] + whole[4:]) == ["no drawing"]
    assert faults_of_head(whole[:5]) == ["nothing about registers and shared memory", "no source"]
    assert faults_of_head([*whole[:3], "//    |" + "-" * 100, *whole[3:]]) == ["a drawing that is too wide"]
    assert faults_of_head(head("#define A 1\n// A tile.\n"))[0] == "no idea"
    defined = "#define A 4 // of k\nconstexpr int B = A * 3;  // bytes\nconstexpr int C = D + 1;\n"
    assert constants(defined) == {"A": 4, "B": 12}
    assert STATED.findall("shared memory: 4 * A * (B + 2) = 1,224 bytes, and B = 12 sums") == [
        ("4 * A * (B + 2)", "1,224"),
        ("B", "12"),
    ]


def test_the_products_story_has_every_rung():
    page = (house.ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 200
    assert ladder_shares.filled(page) == page
    quoted = {rung for _, _, _, _, rung in ladder_shares.SHARE.findall(page)}
    rungs = {name.removeprefix("matmul/") for name in registry.ladder("matmul")}
    assert rungs - quoted == {"numba/amx"}  # no stored ladder has it: the CPU lacked the unit
    assert all(f"**`{rung.partition('/')[2]}`" in page for rung in rungs)
