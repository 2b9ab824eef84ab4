"""make stress NAME=mutants: faults drawn anew from the syntax trees of the product. How many of them do the tests notice?

A fault changes one expression of one function: a comparison, an operator, a number, a condition. It is planted in a copy of the
tree. There the test files that import its module run first, then all tests of its package, until one fails. Some faults change
nothing that anybody could notice, so survivors are listed with their lines, for a reader to judge.
"""

import argparse
import ast
import functools
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import house
import msgspec
from must_reach import Figure, exactly, table

TARGET = 95.0  # per cent
LIMIT_S = 900.0  # of the tests of one fault; an endless loop is noticed too
OTHER_COMPARISON = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_OPERATOR = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div}
OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A planted fault: one expression of a file replaced by another."""

    #: Path below the root of the tree.
    file: str
    #: Line of the expression, from 1.
    line: int
    #: Where the expression begins and ends, in bytes of the file.
    begin: int
    end: int
    #: The expression before and after.
    old: str
    new: str

    def planted(self, source: bytes) -> bytes:
        """The file's text with the fault."""
        return source[: self.begin] + f"({self.new})".encode() + source[self.end :]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a fault."""

    fault: Fault
    #: The first test that failed; "" where none did.
    noticed_by: str


def changed(node: ast.AST) -> ast.expr | None:
    """Another expression in place of this one; None where no rule changes it."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return ast.Compare(left=left, ops=[OTHER_COMPARISON[type(operator)]()], comparators=[right])
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OTHER_OPERATOR:
            return ast.BinOp(left=left, op=OTHER_OPERATOR[type(operator)](), right=right)
        case ast.BoolOp(op=ast.And(), values=values):
            return ast.BoolOp(op=ast.Or(), values=values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return ast.BoolOp(op=ast.And(), values=values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test=test, body=orelse, orelse=body)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in OTHER_FUNCTION:
            return ast.Call(func=ast.Name(id=OTHER_FUNCTION[name]), args=args, keywords=keywords)
        case ast.Constant(value=bool() as value):
            return ast.Constant(value=not value)
        case ast.Constant(value=int() | float() as value):
            return ast.Constant(value=value + 1)
    return None


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions of a function's statements; not those inside f-strings, whose positions Python 3.11 does not tell."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            continue
        if isinstance(child, ast.expr):
            yield child
        yield from expressions(child)


def faults(source: bytes, file: str) -> list[Fault]:
    """Every fault that can be planted in the functions of a file."""
    line_begins = [0]
    for line in source.splitlines(keepends=True):
        line_begins.append(line_begins[-1] + len(line))
    by_place: dict[tuple[int, int], Fault] = {}  # a nested function's expressions are its outer function's too
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in function.body:
            for node in expressions(statement):
                new = changed(node)
                if new is None:
                    continue
                begin = line_begins[node.lineno - 1] + node.col_offset
                end = line_begins[node.end_lineno - 1] + node.end_col_offset
                by_place[begin, end] = Fault(
                    file=file,
                    line=node.lineno,
                    begin=begin,
                    end=end,
                    old=ast.unparse(node),
                    new=ast.unparse(new),
                )
    return list(by_place.values())


@functools.cache
def faults_by_folder() -> dict[Path, list[list[Fault]]]:
    """Folder of the product -> for each file of it that has functions, all their faults."""
    by_folder: dict[Path, list[list[Fault]]] = {}
    for path in house.modules().values():
        of_file = faults(path.read_bytes(), str(path.relative_to(house.ROOT)))
        if of_file:
            by_folder.setdefault(path.parent, []).append(of_file)
    return by_folder


def drawn(count: int, seed: str) -> list[Fault]:
    """So many faults: each from a folder of the product, a file of it and an expression of that, each as likely as the next."""
    by_folder = faults_by_folder()
    folders = sorted(by_folder)
    chance = random.Random(seed)
    some: list[Fault] = []
    while len(some) < count:
        fault = chance.choice(chance.choice(by_folder[chance.choice(folders)]))
        if fault not in some:
            some.append(fault)
    return some


def test_files() -> dict[str, Path]:
    """Path below the root -> file, of all tests."""
    paths = [path for path in house.files("tests") if path.name.startswith("test_")]
    return {str(path.relative_to(house.ROOT)): path for path in paths}


def tests_of(file: str) -> list[list[str]]:
    """What runs for a fault in a file: the test files that import its module, then all others of its package."""
    module = next(name for name, path in house.modules().items() if path == house.ROOT / file)
    tests = test_files()
    imported = house.imports({**house.modules(), **tests})
    near = [name for name in tests if module in imported[name]]
    package = module.partition(".")[0]
    others = [name for name in tests if name.startswith(f"tests/{package}/")]
    return [near, [name for name in others if name not in near]]


def copy_of_tree(folder: Path) -> None:
    """All files that git knows or would add."""
    names = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=house.ROOT, text=True)
    for name in names.split("\0"):
        if name and (house.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(house.ROOT / name, folder / name)


def first_failure(tree: Path, tests: list[str]) -> str:
    """The first test that fails in a copy of the tree; "" where none does."""
    if not tests:
        return ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        run = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"nothing within {LIMIT_S:g} s"
    if run.returncode == 0:
        return ""
    lines = (run.stdout + run.stderr).strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else lines[-1]


def outcome(fault: Fault, tree: Path) -> Outcome:
    """What the tests say of a fault that is planted in a copy of the tree, which is mended afterwards."""
    path = tree / fault.file
    source = path.read_bytes()
    noticed_by = ""
    try:
        path.write_bytes(fault.planted(source))
        for tests in tests_of(fault.file):
            noticed_by = noticed_by or first_failure(tree, tests)
    finally:
        path.write_bytes(source)
    result = Outcome(fault=fault, noticed_by=noticed_by)
    print(described(result), file=sys.stderr, flush=True)
    return result


def described(one: Outcome) -> str:
    """A line for a fault."""
    fault = one.fault
    return f"{fault.file}:{fault.line}: `{fault.old}` became `{fault.new}`: {one.noticed_by or 'SURVIVED'}"


def failing_without_faults(outcomes: list[Outcome], tree: Path) -> str:
    """The first of the tests that noticed a fault which fails without it too; "" where none does."""
    names = {one.noticed_by.split()[1] for one in outcomes if one.noticed_by.startswith(("FAILED ", "ERROR "))}
    return first_failure(tree, sorted(names))


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--count", type=int, default=60, help="faults (60)")
    flags.add_argument("--seed", help="which ones are drawn (the commit)")
    args = flags.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=house.ROOT, text=True).strip()
    some = drawn(args.count, args.seed or commit)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_of_tree(tree)
        outcomes = [outcome(fault, tree) for fault in some]
        if failing := failing_without_faults(outcomes, tree):
            raise RuntimeError(f"fails without a fault too: {failing}")
    noticed = [one for one in outcomes if one.noticed_by]
    share = 100 * len(noticed) / len(outcomes)
    what = f"faults of {len(outcomes)}, drawn by {(args.seed or commit)[:12]}, that the tests notice"
    figures = [Figure(what, f">= {TARGET:g} %", exactly(share), share >= TARGET, "%")]
    survivors = [f"- {described(one)}" for one in outcomes if not one.noticed_by]
    return table("mutants", "Planted faults", figures, survivors, "stress")


if __name__ == "__main__":
    sys.exit(main())
