"""What the whole suite shares: a cache for Numba's code, one TensorFlow process, and the rule about skips."""

import contextlib
import gc
import os
import pathlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable

os.unsetenv("COLUMNS")  # readline, which pytest loads, sets it for children behind os.environ: their lines would wrap
os.environ.setdefault("NUMBA_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / f"crossover-numba-{os.getuid()}"))

import pytest
from kept import numba_folder
from numba.core.caching import UserProvidedCacheLocator

from analysis import noise, units
from kernels.problems import Training
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.records import Row, Settings
from workloads.records.settings import PARTS

UserProvidedCacheLocator.get_suitable_cache_subpath = staticmethod(numba_folder)

# With CI set, these are the only reasons to skip: what a machine can lack that the project does not install.
ALLOWED_SKIPS = re.compile(r"no GPU\b|no (AVX2|AVX-512|AVX512\w*|FMA|AMX|NEON|SVE)\b( on this CPU)?")


@pytest.fixture(autouse=True, scope="session")
def nothing_is_stored():
    """What runs of this machine, or of a stored one, differ by moves no test's numbers: all take noise.DEFAULT. Nor does each
    page of a CPU alone predict by the stored GPU's rows, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "REPORTS", pathlib.Path(__file__).parent / "no such folder")
        patch.setattr("analysis.report.stored_gpu.STORED", "no such folder")
        yield


@pytest.fixture(autouse=True, scope="module")
def only_a_files_own_garbage_is_looked_for():
    """What a process holds from the files before takes half a second to go through, each time a test collects."""
    gc.freeze()


@pytest.fixture
def no_roofs(monkeypatch):
    """The short look at the roofs takes longer than all else in a sweep's tests, and is tested elsewhere."""
    from workloads.harness import plan

    monkeypatch.setattr(plan, "roof_rows", lambda *given, **more: [])


def allowed_skip(reason: str) -> bool:
    """Whether a test may skip for that reason in CI."""
    return ALLOWED_SKIPS.match(reason) is not None


def refuse_skip(report) -> None:
    """Turns a skip into a failure in CI, unless its reason is an allowed one."""
    if not (report.skipped and os.environ.get("CI")) or hasattr(report, "wasxfail"):
        return
    reason = skip_reason(report)
    if not allowed_skip(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI for a reason that CI does not allow: {reason}"


def not_run(skipped: Iterable[str], slow: int) -> str:
    """What a run has left out, in words; "" for nothing. skipped: the reason of each skipped test. slow: how many tests were
    left out as slow."""
    parts = [f"{units.count(number, 'test')} ({reason})" for reason, number in Counter(skipped).most_common()]
    if slow:
        parts.append(f"{units.count(slow, 'slow test')} (make test-all)")
    return ", ".join(parts)


def skip_reason(report) -> str:
    """Why a test was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


_slow_items = set[str]()  # names of the tests that `-m "not slow"` has left out


def pytest_deselected(items):
    """Notes the slow tests that are left out; those that -k has not chosen anyway are gone before, in a call of their own."""
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    if len(slow) == len(items):
        _slow_items.update(slow)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a process of xdist
        session.config.workeroutput["slow"] = sorted(_slow_items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _slow_items.update(getattr(node, "workeroutput", {}).get("slow", ()))


def pytest_unconfigure(config):
    """The last line of a run that passed: what it has left out."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or reporter.stats.keys() & {"failed", "error"}:
        return
    left_out = not_run(map(skip_reason, reporter.stats.get("skipped", ())), len(_slow_items))
    if reporter.stats.get("passed") and left_out:
        reporter.write_line(f"passed; not run here: {left_out}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files that ask the suite's TensorFlow process run in one process, those that share the page of everything in one, and all
    that may see a kernel that another plants in one, each in order; the analysis's, and CUDA C on the CPU, go to whichever is
    free. Which file uses which is told by its text: xdist's groups know no fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    folder = pathlib.Path(__file__).parent

    def files_with(fixtures: str) -> set[str]:
        argument = re.compile(rf"def \w+\((.*, )?({fixtures})\b")
        texts = {file: file.read_text(encoding="utf-8") for file in folder.rglob("test_*.py")}
        return {f"tests/{file.relative_to(folder)}" for file, text in texts.items() if argument.search(text)}

    asking, compiling = files_with("train|inside|build|measured"), files_with("built")

    class Scopes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file in asking:
                return "tensorflow"
            if file.startswith(("tests/analysis/report/", "tests/workloads/fleet/")):
                return "page"
            return file if file.startswith("tests/analysis/") or file in compiling else "all else"

    return Scopes(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    refuse_skip(report)
    return report


@pytest.fixture(scope="module")
def chromium():
    """A running Chromium."""
    import browser

    if browser.executable() is None:
        pytest.skip("no Chromium")
    with browser.chromium() as running:
        yield running


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """(the path of a page of everything, its material): written once for all tests that open it."""
    import browser

    return browser.everything(tmp_path_factory.mktemp("page"))


@pytest.fixture
def threads():
    """Sets Numba's threads, and sets them back."""
    import numba

    before = numba.get_num_threads()
    yield lambda count: numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    numba.set_num_threads(before)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Where a file's CUDA sources are built for the CPU."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler")
    return tmp_path_factory.mktemp("cuda_on_cpu")


@pytest.fixture(scope="module")
def page(chromium, made):
    """The page of everything, opened."""
    import browser

    with browser.opened(chromium, made[0]) as seen:
        yield seen


@pytest.fixture(scope="session")
def whole():
    """The profile of everything that tells about a machine."""
    import made_profile
    from fake_measurements import GPU_MACHINE

    from analysis.predict import profile

    return profile.Profile(made_profile.everything(), GPU_MACHINE)


QUICK_XLA = "--xla_backend_optimization_level=0"  # what XLA makes is run a few times here: LLVM need not make it quick


def lighten(worker: Worker, **given: str) -> None:
    """Starts a worker's framework and has garbage looked for in what comes after that alone."""
    settings = Settings(switches={"data": "synthetic", **given})
    row = Row("training/keras/build", Training("tests.support.inside:light", 1, 1), settings)
    assert worker.ask(Order("measure", row, Limits()), 120).status == "ok"


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """train(batch, samples, epochs, device, threads, model, **switches): a training row measured in the suite's one
    TensorFlow process, which has no way to the network."""
    import importlib.util

    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")

    def row(
        batch=4, samples=8, epochs=1, device="cpu", threads=None, model="cifar10-cnn", kernel="keras/fit", **switches
    ) -> Row:
        of = Training(model, batch, samples, epochs)
        return Row(f"training/{kernel}", of, Settings(device, threads, switches=switches))

    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "HTTP", "HTTPS")}
    home = {"KERAS_HOME": str(tmp_path_factory.mktemp("keras")), "HOME": str(tmp_path_factory.mktemp("home"))}
    parts = {PARTS: "2"}  # a CPU in two, for trainings that are spread; all others use the first
    parts |= {"TF_ENABLE_ONEDNN_OPTS": "1"}  # TensorFlow's default on CPUs with VNNI alone; the same graphs on all
    parts |= {"XLA_FLAGS": QUICK_XLA}
    worker = Worker(environment(row(), {}) | nowhere | home | parts | {"no_proxy": "", "NO_PROXY": ""})

    def ask(*args, **keywords):
        return worker.ask(Order("measure", row(*args, **keywords), Limits(max_time=0.01)), 120)

    lighten(worker)
    ask.worker, ask.row = worker, row
    yield ask
    worker.close()


@pytest.fixture
def one_tensorflow(train, monkeypatch):
    """Sweeps have models trained and asked in the suite's one TensorFlow process."""
    from workloads.harness import runner

    class Shared(Worker):
        def ask(self, order, timeout_s):
            of_models = order.row.problem.op in ("training", "inference")
            return train.worker.ask(order, timeout_s) if of_models else super().ask(order, timeout_s)

    monkeypatch.setattr(runner, "Worker", Shared)


@pytest.fixture(scope="session")
def jax_worker():
    """jax_worker(row): a row measured in the suite's one process of Keras on JAX, which has a CPU in two."""
    import importlib.util

    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    given = {"data": "synthetic", "keras_backend": "jax", "strategy": "DataParallel", "replicas": "2"}
    both = Row("training/keras/fit", Training("mlp-12-16x1-3", 8, 24), Settings(switches=given))
    variables = environment(both, {})
    variables["XLA_FLAGS"] += f" {QUICK_XLA}"
    with contextlib.closing(Worker(variables)) as worker:
        lighten(worker, keras_backend="jax")
        yield lambda row: worker.ask(Order("measure", row, Limits(max_time=0.01)), 120)


@pytest.fixture(scope="session")
def measured(train):
    """measured(kernel, problem): its row on the CPU, in the suite's one TensorFlow process."""
    quick = Limits(visit_s=1e-4, rounds=1, max_noise=1.0, max_time=1e-3)

    def ask(kernel: str, problem):
        return train.worker.ask(Order("measure", Row(kernel, problem, Settings("cpu")), quick), 120)

    return ask


@pytest.fixture(scope="session")
def inside(train):
    """inside(name): (status, reason) of a function of tests/support/inside.py, run in the suite's one TensorFlow process."""

    def ask(name: str) -> tuple[str, str]:
        m = train(1, 1, model=f"tests.support.inside:{name}", kernel="keras/build")
        return m.status, m.reason

    return ask
