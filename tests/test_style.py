"""Statements and names stay plain. What is banned, each with an allowance for each folder that may only fall:

condition multiplied     a sequence, string or number multiplied by a condition, for `if`
nested comprehension     a comprehension inside a comprehension, or with two `for`
crowded statement        more than two comprehensions or conditional expressions in a statement
walrus                   `:=` in a comprehension
positional arguments     more than four in a call of our own; kernels, compiled functions and what they call are exempt
tuple assignment         of three or more targets, unless the right side is one call
args written             an attribute of `args` set outside the parser of the command line
flags passed on          the parsed flags of a command as a parameter of a function that makes no plan of them
string taken apart       `.replace`, `.sub`, `.startswith` on text that no other program or user wrote
words searched           text of a field that holds words for people searched or taken apart: it carries no fact
stored function          a field of a record that is a function
parameter of             a parameter called `of`
empty name               a name of any kind that is built from a word of tests/support/empty_names.py
repeated class           a public class whose name another public class has
renamed module           a module of ours that is imported under another name

`python tests/test_style.py` prints what is in each folder and what is allowed, `--list FOLDER` the places in one folder.
`--lower` writes what is there into tests/style_allowance.toml where that is less. Nothing raises an allowance.
"""

import argparse
import ast
import collections
import pathlib
import sys
import tomllib
from collections.abc import Iterator

import msgspec
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))

import house
from empty_names import empty_words

ALLOWANCE = pathlib.Path(__file__).parent / "style_allowance.toml"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Functions of ours that launch a compiled kernel with its arguments.
LAUNCHES = {"timed_call", "launcher", "overlapping"}
MOST_IN_A_STATEMENT = 2
MOST_POSITIONAL = 4
MOST_TARGETS = 2
#: Functions that give a condition.
CONDITIONS = {"all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"}
#: The parser of the command line.
ARGUMENT_PARSERS = {"workloads/command_line/parsing.py"}
#: Functions that make the plan of a command from its flags; helpers in their files may take these too.
PLAN_MAKERS = {"from_flags", "plan_of", "_plan", "no_plan"}
#: Files whose functions read the flags that many commands share.
SHARED_FLAGS = {"workloads/shared_flags.py"}
#: They read text that users and other programs write: command lines, /proc and /sys, names of libraries, files of other formats.
TEXT_PARSERS = {
    "analysis/explain/__main__.py",
    "analysis/report/html_page.py",
    "install.py",
    "kernels/matmul/mkl.py",
    "kernels/simd/emit.py",
    "workloads/corrections/grammar.py",
    "workloads/corrections/make_goals.py",
    "workloads/corrections/nearest.py",
    "workloads/corrections/refusals.py",
    "workloads/corrections/repairs.py",
    "workloads/corrections/shape_parts.py",
    "workloads/fleet/cluster.py",
    "workloads/harness/energy.py",
    "workloads/harness/plan.py",
    "workloads/command_line/invocation.py",
    "workloads/command_line/quantities.py",
    "workloads/keywords.py",
    "workloads/machine/cpu.py",
    "workloads/machine/facts.py",
    "workloads/machine/gpu.py",
    "workloads/machine/health.py",
    "workloads/command_line/parsing.py",
}
#: Fields and variables that hold words for people.
WORDS_FOR_PEOPLE = {"reason", "stop_reason", "why", "fix", "sentence", "says", "message", "label", "note", "title"}
WORDS_FOR_PEOPLE |= {"subject", "verdict", "caption", "doubt", "what"}
#: Methods and functions of `re` that search text or take it apart.
TEXT_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit"}
TEXT_METHODS |= {"splitlines", "replace", "find", "index", "rstrip", "lstrip", "strip"}
PATTERN_FUNCTIONS = {"sub", "search", "match", "fullmatch", "findall", "split"}
#: (file, class): a kernel's function, and what lives only inside the worker that times it.
RECORDS_OF_FUNCTIONS = {
    ("kernels/collective/cupy.py", "Sum"),
    ("kernels/conv/_implicit_gemm.py", "ImplicitGemms"),
    ("kernels/cuda/rows.py", "Placed"),
    ("kernels/registry.py", "Kernel"),
    ("kernels/transfer/cupy_overlap.py", "Chunk"),
    ("workloads/frameworks/layer_graphs/direction_graph.py", "DirectionGraph"),
    ("workloads/frameworks/layer_graphs/layer_row.py", "_Timed"),
    ("workloads/frameworks/layer_graphs/layer_use.py", "LayerUse"),
    ("workloads/harness/copy_modes.py", "Prepared"),
}


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Python file."""

    #: Inside the repository.
    path: str
    #: Its syntax.
    tree: ast.Module
    #: Every node of its syntax.
    nodes: list[ast.AST]


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """The Python code that is looked at, as a whole."""

    #: The files, in the order of their paths.
    files: list[File]
    #: Dotted names of the modules.
    modules: set[str]
    #: Names of the functions, methods and classes that the modules define and that are not compiled.
    callables: set[str]
    #: Name of a public class -> how many modules define it.
    public_classes: dict[str, int]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a ban forbids."""

    #: A name of BANS.
    ban: str
    #: The file, inside the repository.
    path: str
    #: The line, from 1.
    line: int


def code(trees: dict[str, ast.Module]) -> Code:
    """The files of these paths, and what the bans need to know of all of them together."""
    files = [File(path=path, tree=tree, nodes=list(ast.walk(tree))) for path, tree in sorted(trees.items())]
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in trees}
    callables = set()
    public_classes: collections.Counter[str] = collections.Counter()
    for file in files:
        for node in file.nodes:
            if isinstance(node, ast.ClassDef):
                callables.add(node.name)
            if isinstance(node, FUNCTIONS) and not house.compiled(node):
                callables.add(node.name)
        public_classes.update(node.name for node in public_class_definitions(file.tree))
    return Code(files=files, modules=modules, callables=callables - LAUNCHES, public_classes=public_classes)


def product() -> Code:
    """The product's code and what lies at the top of the repository."""
    paths = [*house.modules().values(), *house.ROOT.glob("*.py")]
    return code({str(path.relative_to(house.ROOT)): house.tree(path) for path in paths})


# ---------------------------------------------------------------- statements


def is_condition(node: ast.expr) -> bool:
    """Whether an expression is true or false by its form."""
    if isinstance(node, ast.BoolOp):
        return any(is_condition(value) for value in node.values)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in CONDITIONS
    return isinstance(node, ast.Compare)


def condition_multiplied(file: File, whole: Code) -> Iterator[ast.AST]:
    for node in file.nodes:
        if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Mult):
            continue
        factors = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        if any(is_condition(factor) for factor in factors):
            yield node


def comprehensions_inside(node: ast.AST) -> list[ast.AST]:
    """The comprehensions below a node."""
    return [inner for inner in ast.walk(node) if isinstance(inner, COMPREHENSIONS) and inner is not node]


def nested_comprehension(file: File, whole: Code) -> Iterator[ast.AST]:
    nested: set[ast.AST] = set()
    for node in file.nodes:
        if isinstance(node, COMPREHENSIONS):
            nested.update(comprehensions_inside(node))
            if len(node.generators) > 1:
                nested.add(node)
    yield from nested


def expressions(statement: ast.AST) -> Iterator[ast.AST]:
    """Everything that belongs to a statement itself: not the statements inside it."""
    for node in ast.iter_child_nodes(statement):
        if not isinstance(node, ast.stmt):
            yield node
            yield from expressions(node)


def crowded_statement(file: File, whole: Code) -> Iterator[ast.AST]:
    for statement in file.nodes:
        if isinstance(statement, ast.stmt):
            counted = [node for node in expressions(statement) if isinstance(node, (*COMPREHENSIONS, ast.IfExp))]
            if len(counted) > MOST_IN_A_STATEMENT:
                yield statement


def walrus(file: File, whole: Code) -> Iterator[ast.AST]:
    inside: set[ast.AST] = set()
    for node in file.nodes:
        if isinstance(node, COMPREHENSIONS):
            inside.update(inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
    yield from inside


def imported(file: File) -> dict[str, str]:
    """Name in a file -> dotted name of what it imports under it."""
    names = {}
    for node in file.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                names[local] = alias.name
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def first_name(node: ast.expr) -> str:
    """The name that an expression begins with: `np` of `np.linalg.norm`; empty when it begins with anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def calls_outside_compiled_code(node: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS) and house.compiled(child):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from calls_outside_compiled_code(child)


def positional_arguments(file: File, whole: Code) -> Iterator[ast.AST]:
    packages = {module.partition(".")[0] for module in whole.modules}
    foreign = {name for name, full in imported(file).items() if full.partition(".")[0] not in packages}
    for call in calls_outside_compiled_code(file.tree):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else first_name(call.func)
        is_ours = name in whole.callables and first_name(call.func) not in foreign
        if is_ours and len(call.args) > MOST_POSITIONAL:
            yield call


def tuple_assignment(file: File, whole: Code) -> Iterator[ast.AST]:
    for node in file.nodes:
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Tuple | ast.List) and len(target.elts) > MOST_TARGETS:
                yield node


def args_written(file: File, whole: Code) -> Iterator[ast.AST]:
    if file.path in ARGUMENT_PARSERS:
        return
    for node in file.nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            written_to = node.value
        elif isinstance(node, ast.Call) and first_name(node.func) == "setattr":
            written_to = node.args[0]
        else:
            continue
        if first_name(written_to) == "args":
            yield node


def flags_passed_on(file: File, whole: Code) -> Iterator[ast.AST]:
    if file.path in ARGUMENT_PARSERS | SHARED_FLAGS:
        return
    functions = [node for node in file.nodes if isinstance(node, FUNCTIONS)]
    makes_plans = any(function.name in PLAN_MAKERS - {"_plan"} for function in functions)
    for function in functions:
        is_reader = function.name in PLAN_MAKERS or (makes_plans and function.name.startswith("_"))
        annotations = [node.annotation for node in function.args.args if node.annotation is not None]
        takes_flags = "Namespace" in last_names(annotations)
        if takes_flags and not is_reader:
            yield function


def string_taken_apart(file: File, whole: Code) -> Iterator[ast.AST]:
    if file.path in TEXT_PARSERS:
        return
    for node in file.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        # A record's or a path's `replace` takes one positional argument, a string's takes two; LLVM's builder subtracts by `sub`.
        is_subtraction = name == "sub" and first_name(node.func) == "builder"
        is_replacement = name in ("replace", "sub") and len(node.args) > 1
        if name == "startswith" or (is_replacement and not is_subtraction):
            yield node


def is_words(node: ast.expr) -> bool:
    """Whether an expression is a field or variable of WORDS_FOR_PEOPLE, or text made of one: `str(message)`, `why.lower()`."""
    if isinstance(node, ast.Attribute):
        return node.attr in WORDS_FOR_PEOPLE
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and is_words(node.func.value)
    return isinstance(node, ast.Name) and node.id in WORDS_FOR_PEOPLE


def words_searched(file: File, whole: Code) -> Iterator[ast.AST]:
    if file.path in TEXT_PARSERS:
        return
    for node in file.nodes:
        is_membership = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
        if is_membership and is_words(node.comparators[0]):
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            is_taken_apart = name in TEXT_METHODS and is_words(node.func.value)
            is_searched = name in PATTERN_FUNCTIONS and any(is_words(argument) for argument in node.args)
            if is_taken_apart or is_searched:
                yield node


# ---------------------------------------------------------------- records


def last_names(nodes: list[ast.expr]) -> set[str]:
    """The last name of each expression: `Struct` of `msgspec.Struct`, `dataclass` of `dataclasses.dataclass(frozen=True)`."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            node = node.func
        if isinstance(node, ast.Subscript):
            node = node.value
        names.add(node.attr if isinstance(node, ast.Attribute) else first_name(node))
    return names


def is_record(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    return bool(last_names(node.bases) & {"Struct", "NamedTuple"} or "dataclass" in last_names(node.decorator_list))


def stored_function(file: File, whole: Code) -> Iterator[ast.AST]:
    for record in filter(is_record, file.nodes):
        if (file.path, record.name) in RECORDS_OF_FUNCTIONS:
            continue
        for field in record.body:
            if isinstance(field, ast.AnnAssign) and "Callable" in ast.unparse(field.annotation):
                yield field


# ---------------------------------------------------------------- names


def parameter_of(file: File, whole: Code) -> Iterator[ast.AST]:
    for node in file.nodes:
        if isinstance(node, ast.arg) and node.arg in ("of", "of_", "_of"):
            yield node


def defined_name(node: ast.AST) -> str:
    """The name that a node gives to something; empty when it gives none."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    if isinstance(node, ast.alias):
        return node.asname or ""
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return node.name or ""
    return ""


def empty_name(file: File, whole: Code) -> Iterator[ast.AST]:
    if empty_words(pathlib.PurePath(file.path).stem):
        yield file.tree
    for node in file.nodes:
        if empty_words(defined_name(node)):
            yield node


def public_class_definitions(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def repeated_class(file: File, whole: Code) -> Iterator[ast.AST]:
    for node in public_class_definitions(file.tree):
        if whole.public_classes[node.name] > 1:
            yield node


def renamed_module(file: File, whole: Code) -> Iterator[ast.AST]:
    for node in file.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if f"{package}{alias.name}" in whole.modules and alias.asname not in (None, alias.name):
                    yield alias


# ---------------------------------------------------------------- counting

BANS = {
    "condition multiplied": condition_multiplied,
    "nested comprehension": nested_comprehension,
    "crowded statement": crowded_statement,
    "walrus": walrus,
    "positional arguments": positional_arguments,
    "tuple assignment": tuple_assignment,
    "args written": args_written,
    "flags passed on": flags_passed_on,
    "string taken apart": string_taken_apart,
    "words searched": words_searched,
    "stored function": stored_function,
    "parameter of": parameter_of,
    "empty name": empty_name,
    "repeated class": repeated_class,
    "renamed module": renamed_module,
}


def faults(whole: Code) -> list[Fault]:
    """Every place that a ban forbids, file by file, in the order of their lines."""
    every = []
    for file in whole.files:
        for ban, places in BANS.items():
            for node in places(file, whole):
                every.append(Fault(ban=ban, path=file.path, line=getattr(node, "lineno", 1)))
    return sorted(every, key=lambda fault: (fault.path, fault.line))


def folder(fault: Fault) -> str:
    """The folder of the file; "." is the top of the repository."""
    return str(pathlib.PurePath(fault.path).parent)


def counted(every: list[Fault]) -> dict[str, dict[str, int]]:
    """Folder -> ban -> number of faults."""
    counts: dict[str, dict[str, int]] = {}
    for fault in every:
        bans = counts.setdefault(folder(fault), {})
        bans[fault.ban] = bans.get(fault.ban, 0) + 1
    return counts


def allowance() -> dict[str, dict[str, int]]:
    """Folder -> ban -> number of faults that are allowed."""
    return tomllib.loads(ALLOWANCE.read_text())


def lowered(allowed: dict[str, dict[str, int]], counts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The allowance, lowered to what is there; what falls to 0 leaves it."""
    table: dict[str, dict[str, int]] = {}
    for name, bans in sorted(allowed.items()):
        for ban, most in bans.items():
            left = min(most, counts.get(name, {}).get(ban, 0))
            if left:
                table.setdefault(name, {})[ban] = left
    return table


def written(table: dict[str, dict[str, int]]) -> str:
    """The allowance as TOML."""
    lines = ["# What tests/test_style.py allows. A number may only fall: python tests/test_style.py --lower"]
    for name, bans in table.items():
        lines += ["", f'["{name}"]']
        lines += [f'"{ban}" = {most}' for ban, most in bans.items()]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- tests

PRODUCT = product()


def test_no_folder_exceeds_its_allowance():
    every = faults(PRODUCT)
    allowed = allowance()
    too_many = []
    for name, bans in counted(every).items():
        for ban, number in bans.items():
            most = allowed.get(name, {}).get(ban, 0)
            if number > most:
                too_many.append(
                    f"{name}, {ban}: {number}, allowed {most}; see python tests/test_style.py --list {name}"
                )
    assert not too_many, "\n".join(too_many)


SNIPPETS = [
    ("condition multiplied", "x = [note] * (count > 0)", "x = [note] if count > 0 else []"),
    ("condition multiplied", "x = 's' * (not one)", "x = 's' * missing"),
    ("condition multiplied", "x = 3 * (one and two > 1)", "x = 3 * (one or two)"),
    ("condition multiplied", "x *= bool(y)", "x *= int(y)"),
    ("nested comprehension", "x = [[a for a in b] for b in c]", "x = [list(b) for b in c]"),
    ("nested comprehension", "x = {a for b in c for a in b}", "x = {a for a in b}"),
    ("crowded statement", "x = [a if b else c, d if e else f, g if h else i]", "x = [a if b else c, d if e else f]"),
    (
        "crowded statement",
        "if any(x) and f(a for a in b) and [a for a in b] and {a for a in b}: pass",
        "if x:\n y = [a for a in b]",
    ),
    ("walrus", "x = [y for a in b if (y := f(a))]", "if (y := f(a)): pass"),
    ("positional arguments", "def f(*a): ...\nf(1, 2, 3, 4, 5)", "def f(*a): ...\nf(1, 2, 3, 4, e=5)"),
    ("positional arguments", "class F: ...\nF(1, 2, 3, 4, 5)", "import numpy\ndef f(): ...\nnumpy.f(1, 2, 3, 4, 5)"),
    ("positional arguments", "def f(*a): ...\nx.f(1, 2, 3, 4, 5)", "@numba.njit\ndef f(*a): ...\nf(1, 2, 3, 4, 5)"),
    (
        "positional arguments",
        "def f(*a): ...\ndef g():\n f(1, 2, 3, 4, 5)",
        "def f(*a): ...\n@numba.njit\ndef g():\n f(1, 2, 3, 4, 5)",
    ),
    ("positional arguments", "def f(*a): ...\nf(1, 2, 3, 4, 5)", "def timed_call(*a): ...\ntimed_call(1, 2, 3, 4, 5)"),
    ("tuple assignment", "a, b, c = 1, 2, 3", "a, b, c = f()"),
    ("tuple assignment", "a, b, c = row", "a, b = row"),
    ("args written", "args.device = 1", "device = args.device"),
    ("args written", "setattr(args, 'device', 1)", "setattr(plan, 'device', 1)"),
    ("flags passed on", "def show(flags: Namespace): ...", "def from_flags(cls, flags: Namespace): ..."),
    (
        "flags passed on",
        "def _plan(flags: argparse.Namespace): ...\ndef _run(flags: argparse.Namespace): ...",
        "def from_flags(cls, flags: Namespace): ...\ndef _sizes(flags: Namespace): ...",
    ),
    ("string taken apart", "x = text.replace('a', 'b')", "x = msgspec.structs.replace(row, batch=1)"),
    ("string taken apart", "x = re.sub('a', 'b', text)", "x = path.replace(target)"),
    ("string taken apart", "x = pattern.sub('b', text)", "x = builder.sub(a, b)"),
    ("string taken apart", "x = text.startswith('a')", "x = device.is_gpu"),
    ("words searched", "x = 'GiB' in m.reason", "x = m.cause == 'does-not-fit'"),
    ("words searched", "x = m.reason.startswith('out of ')", "x = m.device.startswith('gpu')"),
    ("words searched", "x = re.sub(r'[0-9]+', 'N', part.why)", "x = re.sub('a', 'b', text)"),
    ("words searched", "x = name.label.lower().split(' ')", "x = f'{name.label} {name.unit}'"),
    (
        "stored function",
        "class A(msgspec.Struct, frozen=True):\n run: Callable[[], int]",
        "class A(Protocol):\n def run(self): ...",
    ),
    ("stored function", "@dataclasses.dataclass\nclass A:\n run: Callable | None", "class A:\n run: Callable"),
    ("parameter of", "def f(of): ...", "def f(profile): ..."),
    ("empty name", "found = 1", "profile = 1"),
    ("empty name", "def f(own_rows): ...", "def f(owner): ..."),
    ("empty name", "class Seen: ...", "class Scene: ..."),
    ("empty name", "self.kept = 1", "f(self.kept)"),
    ("empty name", "import a as told", "import told"),
    ("empty name", "for of_keras in x: ...", "for layers_of in x: ..."),
    ("repeated class", "class Repeated: ...", "class Other: ..."),
    ("renamed module", "from kernels import snippet as words", "from kernels import snippet"),
    ("renamed module", "import kernels.other as words", "import numpy as np"),
]


def bans_broken(text: str) -> set[str]:
    """The bans that a file breaks, beside another that has a class `Repeated`."""
    other = ast.parse("class Repeated: ...")
    whole = code({"kernels/snippet.py": ast.parse(text), "kernels/other.py": other})
    return {fault.ban for fault in faults(whole) if fault.path == "kernels/snippet.py"}


@pytest.mark.parametrize(("ban", "banned", "plain"), SNIPPETS)
def test_each_ban_fails_where_its_plain_form_passes(ban, banned, plain):
    assert ban in bans_broken(banned)
    assert ban not in bans_broken(plain)


def test_every_ban_has_a_snippet_and_a_line():
    assert {ban for ban, _, _ in SNIPPETS} == BANS.keys()
    head = [line.partition("   ")[0] for line in __doc__.splitlines()]
    assert [line for line in head if line in BANS] == list(BANS)


def test_file_names_count_parsers_are_exempt():
    badly_named = code({"kernels/held.py": ast.parse("x = 1")})
    assert [fault.ban for fault in faults(badly_named)] == ["empty name"]
    parser = code({"workloads/command_line/parsing.py": ast.parse("args.x = text.replace('a', 'b')")})
    assert faults(parser) == []
    kernel = code({"kernels/registry.py": ast.parse("class Kernel(Struct):\n bind: Callable")})
    assert faults(kernel) == []
    listed = {*ARGUMENT_PARSERS, *SHARED_FLAGS, *TEXT_PARSERS, *(path for path, _ in RECORDS_OF_FUNCTIONS)}
    assert listed <= {file.path for file in PRODUCT.files}


def test_an_allowance_falls_and_never_rises():
    allowed = {"a": {"walrus": 3, "empty name": 2}, "b": {"walrus": 1}}
    counts = {"a": {"walrus": 1, "empty name": 5}, "c": {"walrus": 4}}
    table = lowered(allowed, counts)
    assert table == {"a": {"walrus": 1, "empty name": 2}}
    assert tomllib.loads(written(table)) == table


# ---------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description="What the style's bans forbid, in each folder of the product.")
    parser.add_argument("--list", metavar="FOLDER", help="print the places of one folder")
    parser.add_argument("--lower", action="store_true", help="lower the stored allowances to what is there")
    args = parser.parse_args()
    every = faults(PRODUCT)
    if args.list:
        for fault in every:
            if folder(fault) == args.list.rstrip("/"):
                print(f"{fault.path}:{fault.line}: {fault.ban}")
        return
    counts = counted(every)
    allowed = allowance()
    if args.lower:
        allowed = lowered(allowed, counts)
        ALLOWANCE.write_text(written(allowed))
    for name, bans in counts.items():
        for ban, number in bans.items():
            most = allowed.get(name, {}).get(ban, 0)
            print(f"{name:25} {ban:22} {number:5} of {most}")
    print(f"{len(every)} places")


if __name__ == "__main__":
    main()
