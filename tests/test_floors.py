"""Who may import whom: the three floors, over every file's imports; and heavy libraries only where they belong."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("kernels", "workloads", "analysis")
GROUND = {
    *(f"kernels.{name}" for name in ("problems", "networks", "registry", "reference")),
    *(f"workloads.{name}" for name in ("options", "records", "baselines", "machine", "host", "nvidia")),
    *(f"workloads.{name}" for name in ("switches", "cases", "health", "row_flags")),
    *(f"analysis.{name}" for name in ("estimate",)),
}
_MIDDLE = """sweep plan worker measure timing copies caches telemetry cpu_watch gpu_watch probes refereeing
    pyperf_child cuda_bench_child models data keras_child cluster show starts tensors trainers feeds loops
    jax_loop fits usermodels together parties answering serving studies asked forecast windows energy describing handlers
    at_once fleet fleet_cluster replicas spread findable ends judging results"""
MIDDLE = {f"workloads.{name}" for name in _MIDDLE.split()}
WHOLE = ("kernels.problems.", "kernels.networks.", "kernels.reference.")  # folders of the ground
CHILD_ONLY = {"tensorflow", "keras", "jax"}
_CHILDREN = """keras_child models data tensors starts caches trainers feeds loops jax_loop fits usermodels answering serving
windows describing replicas"""
CHILDREN = {f"workloads.{name}" for name in _CHILDREN.split()}


def modules() -> dict[str, ast.Module]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text())
    return found


def imports(tree: ast.Module, here: str, known: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in known else node.module for a in node.names
            }
    return found - {here}


def floor(name: str) -> int:
    if name in GROUND or name in PACKAGES or name.startswith(WHOLE):
        return 0
    if name in MIDDLE or name.startswith(("kernels.", "analysis.")):
        return 1
    return 2


TREES = modules()
IMPORTS = {name: imports(tree, name, set(TREES)) for name, tree in TREES.items()}


@pytest.mark.parametrize("name", sorted(TREES))
def test_no_import_goes_up(name):
    ours = {i for i in IMPORTS[name] if i in TREES}
    up = {i for i in ours if floor(i) > floor(name)}
    assert not up, f"{name} (floor {floor(name)}) imports {up}"


def test_analysis_never_times_and_kernels_know_no_workload():
    for name, found in IMPORTS.items():
        if name.startswith("analysis"):
            assert not {i for i in found if i.startswith("workloads.") and i not in GROUND}, name
        if name.startswith("kernels"):
            assert not {i for i in found if i.startswith(("workloads", "analysis"))}, name


def test_training_frameworks_are_imported_in_children_only():
    for name, found in IMPORTS.items():
        heavy = {i for i in found if i.split(".")[0] in CHILD_ONLY}
        assert not heavy or name in CHILDREN or ".tensorflow" in name, f"{name} imports {heavy}"


def test_command_modules_import_nothing_heavy_at_the_top():
    for name, tree in TREES.items():
        if not (name.startswith("workloads.") and floor(name) == 2) or name == "workloads.tables":
            continue
        top = {
            i
            for node in tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for i in imports(ast.Module([node], []), name, set(TREES))
        }
        assert {i for i in top if i in TREES or i.split(".")[0] in PACKAGES} <= {
            "workloads.options",
            "workloads.machine.health",
            "workloads",
        }, name


def test_nothing_imports_reports_or_tests():
    for name, found in IMPORTS.items():
        assert not {i for i in found if i.split(".")[0] in ("reports", "tests")}, name
