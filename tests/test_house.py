"""The house stays in order: sizes of files, folders and functions within the limits in pyproject.toml, and imports in layers."""

import ast
import functools
import pathlib
import re
import subprocess
import tomllib

import house

from workloads import help_screen

LIMITS = house.limits()


def test_files_folders_and_functions_are_within_their_limits():
    product = [p for package in house.PRODUCT for p in house.files(package) if p.suffix in (".py", ".cu", ".cuh")]
    tests = [p for p in house.files("tests") if p.suffix == ".py"]
    long = {str(p): n for p in product if (n := house.lines(p)) > LIMITS["file_lines"]}
    long |= {str(p): n for p in tests if (n := house.lines(p)) > LIMITS["test_file_lines"]}
    assert not long
    assert not {folder: n for folder, n in house.folders().items() if n > LIMITS["modules_a_folder"]}
    large = {
        f"{module}.{name}": (lines, parameters)
        for module, path in house.modules().items()
        for name, lines, parameters in house.functions(path)
        if lines > LIMITS["function_lines"] or parameters > LIMITS["function_parameters"]
    }
    assert not large


def test_no_modules_import_each_other():
    assert not house.circle(house.imports(house.modules()))
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e2"}, "e2": {"e"}}
    assert house.circle(graph) in (["a", "b", "c"], ["e", "e2"]) and house.circle({"a": {"b"}, "b": set()}) == []


def layers_of_workloads() -> set[str]:
    """The modules that the import contract on workloads names."""
    contracts = tomllib.loads((house.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["workloads"]]
    return {name for layer in layers for name in re.findall(r"\w+", layer)}


def test_only_the_suite_imports_commands_of_workloads():
    """What the contract on workloads does not name is a command: then nobody else imports it, nor does another command."""
    modules = house.modules()
    topmost = {name.split(".")[1] for name in modules if name.startswith("workloads.")}
    commands = topmost - layers_of_workloads()
    assert {"matmul", "training", "layer", "doctor"} <= commands
    questions = {name.removeprefix("workloads.") for name in help_screen.commands() if name.startswith("workloads.")}
    assert commands <= questions
    starters = {"__main__", "suite", "serve", "suite_parts"}
    for importer, imported in house.imports(modules).items():
        package, _, rest = importer.partition(".")
        own = {rest.partition(".")[0]} if package == "workloads" else set()
        if own & starters:
            continue
        theirs = {module.split(".")[1] for module in imported if module.startswith("workloads.")}
        assert theirs & commands <= own, f"{importer} imports a command"


def test_nothing_imports_the_console_command():
    """import-linter takes packages alone, no single module."""
    graph = house.imports(house.modules())
    assert "workloads.options" in graph["crossover"]
    assert [module for module, imported in graph.items() if "crossover" in imported] == []


# Tests of the tree itself and of all commands together.
OF_THE_TREE = {
    "commands",
    "faults",
    "house",
    "package",
    "recipes",
    "skips",
    "style",
    "teaching",
    "words",
    "wrong_commands",
}


def has_its_module(test: pathlib.Path, root: pathlib.Path = house.ROOT) -> bool:
    """Whether tests/a/b/test_thing.py tests a module a/b/thing.py, a package a/b/thing, or tests/a/b/thing.py."""
    thing = test.stem.removeprefix("test_")
    folder = test.parent.relative_to(root / "tests")
    product = [root / folder / name for name in (f"{thing}.py", f"_{thing}.py", f"{thing}/__init__.py")]
    if any(path.is_file() for path in (*product, test.parent / f"{thing}.py")):
        return True
    return folder == pathlib.Path() and thing in OF_THE_TREE


def test_a_test_lies_where_its_module_does(tmp_path):
    tests = [path for path in house.files("tests") if path.name.startswith("test_") and path.suffix == ".py"]
    assert len(tests) > 100
    assert [str(path) for path in tests if not has_its_module(path)] == []
    for file in (
        "analysis/text/cases.py",
        "kernels/problems/__init__.py",
        "kernels/conv/_pixels.py",
        "tests/bench/stream.py",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    right = (
        "analysis/text/test_cases.py",
        "kernels/test_problems.py",
        "kernels/conv/test_pixels.py",
        "bench/test_stream.py",
    )
    wrong = ("analysis/test_cases.py", "kernels/problems/test_house.py", "test_stream.py")
    assert all(has_its_module(tmp_path / "tests" / file, tmp_path) for file in (*right, "test_house.py"))
    assert not any(has_its_module(tmp_path / "tests" / file, tmp_path) for file in wrong)


def imported_tests(text: str) -> list[str]:
    """The test files that a file under tests/ imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if any(part.startswith("test_") for part in name.split("."))]


def test_nothing_imports_a_test():
    """What tests share lies in tests/support."""
    for path in house.files("tests"):
        if path.suffix == ".py":
            assert imported_tests(path.read_text(encoding="utf-8")) == [], path
    assert imported_tests("from test_jobs import both\nimport tests.bench.test_fleet") == [
        "test_jobs.both",
        "tests.bench.test_fleet",
    ]
    assert imported_tests("from fake_trainings import both\nimport pytest") == []


def names_of_tests(text: str) -> list[str]:
    """The names of the tests of a file."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return [function.name for function in functions if function.name.startswith("test_")]


def has_a_short_name(test: str) -> bool:
    """Whether a test's name, without `test_`, has few enough words."""
    return len(test.removeprefix("test_").split("_")) <= LIMITS["test_name_words"]


def test_a_test_says_its_behavior_in_few_words():
    for path in house.files("tests"):
        if path.name.startswith("test_"):
            names = names_of_tests(path.read_text(encoding="utf-8"))
            assert [name for name in names if not has_a_short_name(name)] == [], path
    assert names_of_tests("class TestA:\n    def test_b_c(self): ...\n\ndef helper(): ...") == ["test_b_c"]
    assert has_a_short_name("test_one_two_three_four_five_six_seven_eight")
    assert not has_a_short_name("test_one_two_three_four_five_six_seven_eight_nine")


@functools.cache
def named(module: str) -> set[str]:
    """What a module of the product lets another import from it."""
    known = house.modules()
    found = {name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == module}
    nodes: list[ast.AST] = [house.tree(known[module])]
    for node in nodes:  # it grows: what stands in the module itself, not in its functions and classes
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        nodes += ast.iter_child_nodes(node)
    return found


def test_what_a_module_imports_from_another_is_there():
    """Kernels for a GPU are imported nowhere else, and mypy looks away there: runs carry attributes."""
    lacking = [
        f"{module}: {node.module}.{alias.name}"
        for module, path in house.modules().items()
        for node in ast.walk(house.tree(path))
        if isinstance(node, ast.ImportFrom) and node.module in house.modules()
        for alias in node.names
        if alias.name not in named(node.module)
    ]
    assert lacking == []


def test_every_package_has_two_sentences():
    for module, path in house.modules().items():
        text = ast.get_docstring(house.tree(path))
        assert text, f"{module} has no docstring"
        assert house.sentences(text) <= LIMITS["docstring_sentences"], module
    assert house.sentences("One thought. Then 2.5 more, see `a. B`.") == 2 and house.sentences("No dot at the end") == 1


FRAMEWORKS = {"tensorflow", "keras", "jax"}
# What runs in worker processes alone; a framework that another process imports would take its GPU and its threads.
IN_WORKERS = ("workloads.frameworks.", "workloads.harness.startup", "workloads.harness.cache_state")


def test_frameworks_are_imported_in_workers_only():
    for module, path in house.modules().items():
        own = module.startswith(IN_WORKERS) or (module.startswith("kernels.") and "tensorflow" in module)
        taken = {
            name.split(".")[0]
            for node in ast.walk(house.tree(path))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert own or not taken & FRAMEWORKS, module


def named_places(folder) -> list[str]:
    """The lines of a folder's files, but for ignored ones, that have a path of somebody's machine."""
    path = r"(^|[^A-Za-z0-9_.<{}])/(root|home/[a-z0-9_-]+|work|Users/[A-Za-z]+)/"
    words = ["git", "grep", "--no-index", "--exclude-standard", "-nIE", path]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout.splitlines()


def test_no_file_names_a_developers_folder(tmp_path):
    assert not named_places(house.ROOT)
    (tmp_path / "notes.md").write_text("see reports/home/x.md\nthe rows lie in /" + "home/ann/rows\n")
    assert [line.partition(":")[0] for line in named_places(tmp_path)] == ["notes.md"]


def stored_bytes(folder) -> int:
    """The bytes of a folder's files, but for ignored ones."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout
    files = [folder / name for name in listed.split("\0") if name]
    return sum(file.stat().st_size for file in files if file.is_file())


def test_stored_results_are_small_enough_to_be_cloned(tmp_path):
    assert 0 < stored_bytes(house.ROOT / "reports") <= LIMITS["reports_bytes"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("*.html\n")
    (tmp_path / "rows.jsonl").write_bytes(b"x" * 100)
    (tmp_path / "page.html").write_bytes(b"x" * 1000)
    assert stored_bytes(tmp_path) == len("*.html\n") + 100


def test_contracts_of_imports_are_kept():
    broken, printed = house.broken_contracts()
    assert not broken, printed


BELOW_COMMANDS = (
    "workloads.harness",
    "workloads.frameworks",
    "workloads.fleet",
    "workloads.records",
    "workloads.machine",
)


def imports_argparse(tree: ast.Module) -> bool:
    """Whether a module imports argparse, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == "argparse" for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "argparse":
            return True
    return False


def test_flags_are_known_to_commands_alone():
    """Below a command everything takes its plan, or fields of it."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in house.modules().items()}
    reading = {name for name, tree in trees.items() if imports_argparse(tree)}
    assert {"workloads.command_line.parsing", "workloads.matmul", "workloads.suite"} <= reading
    assert not {name for name in reading if name.startswith(BELOW_COMMANDS)}
