"""Explains a training (an article's, a complaint's or your own model's): which device wins, why, and what would help."""

import argparse
import itertools
import os
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from analysis.explain import explanation, measure, verify
from analysis.explain.explanation import Explanation, Request, Sources
from analysis.explain.measure import Part
from analysis.explain.measuring import Failure, TimeBudget
from analysis.explain.training_answer import TrainingAnswer, training_answer
from analysis.predict import prediction, profile
from analysis.predict.profile import Lacking, Profile
from analysis.stats import is_gpu
from analysis.text import advice, cases
from analysis.text import explanation as words
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads import REPORTS, options, records, terminal
from workloads.corrections import closest
from workloads.machine import facts, load
from workloads.records import model_files, published_cases, settings
from workloads.records.files import NoRun

STORED_GPU = "nvidia-h200"  # its profile comes with the package
ALL = "all"  # the cases
CASES_PAGE = """# Articles and complaints, answered

`python -m analysis.explain --case all --format md {runs} > docs/cases.md` writes this page.
"""


def body(args: argparse.Namespace, again: str) -> int:
    """Answers what the flags ask; `again`: the command as it was typed.

    Raises: options.Usage for flags that name nothing, or too much; Missing where no row tells it.
    """
    check(args)
    try:
        return _explained(args, again)
    except Lacking as lacking:
        raise options.Missing(f"no rows of this machine tell it: {lacking.what}", f"{again} --measure") from lacking


def check(args: argparse.Namespace) -> None:
    """Looks for what the flags name, as far as that takes no time.

    Raises: options.Usage for what is not there, and for flags that name nothing, or too much.
    """
    lost = [run for run in args.runs if not _is_run(run)]
    if not args.case and not args.model:
        first = lost[0] if lost else ""
        flag = "--case" if first in published_cases.EVERY else "--model"
        is_path = os.sep in first and ":" not in first  # of a run that is not there
        if not first or is_path or first.isdecimal():
            raise options.Usage("name what to explain, with --case or --model")
        raise options.Usage("name what to explain, with --case or --model", wrong=first, right=f"{flag} {first}")
    if args.case and args.model:
        raise options.Usage("--case brings its own model; leave one of them out", wrong="--case")
    if args.case == ALL and args.how:
        raise options.Usage("--how is for one answer; name one case", wrong="--how")
    if args.case and args.case not in (ALL, *published_cases.EVERY):
        raise options.unknown("case", args.case, sorted(published_cases.EVERY), needed=True)
    if args.model and settings.is_user_model(args.model):
        model_files.require(args.model)
    elif args.model:
        settings.network(args.model, own=True)
    for run in lost:
        one_number = "; a flag here takes one number" if run.isdecimal() else ""
        near = NoRun(run, ())
        raise options.Usage(
            f"{run!r} is no run{one_number}", wrong=run, right=near.right if near.similar else "", similar=near.similar
        )
    if args.gpu_profile and not _is_run(args.gpu_profile):
        raise unknown_gpu(args.gpu_profile)


def _is_run(run: str) -> bool:
    try:
        return bool(records.files_of(profile.file_of(run)))
    except FileNotFoundError:
        return False


def unknown_gpu(name: str) -> options.Usage:
    """The error for a GPU profile that is not there: it names those that are stored."""
    known = profile.stored_names()
    similar = closest(name, known)
    message = f"no stored rows of a GPU in {name!r}; stored: {', '.join(known)}"
    right = similar or STORED_GPU
    return options.Usage(message, wrong=name, right=right, similar="GPU profile" if similar else "")


def _explained(args: argparse.Namespace, again: str) -> int:
    if args.case == ALL:
        return _every_case(args)
    request, case = _asked(args)
    profiles = sources(args.runs, args.gpu_profile)
    markdown = args.format == "md"
    made: Explanation | None = None
    answer = TrainingAnswer()
    lines: list[str] = []
    record: dict[str, Any] = {}
    if case is not None:
        reply = cases.reply(case, profiles, request)
        more = again if request and not args.all else ""
        lines = cases.lines(reply, more, markdown)
        record = {"case": case.name, "answer": reply}
    if case is None or (request and (args.all or args.verify or args.how or args.format == "json")):
        made, profiles, offer = _measured(args, request, profiles, again)
        verdict = _verdict(made, profiles, again, offer=offer, markdown=markdown)
        framework = _framework(profiles)
        if args.all:
            kept = (line for line in verdict if not line.rstrip("`").endswith(" --all"))
            verdict = [line.replace(" (--all)", " below") for line in kept]
        if lines:
            lines.append("")
        lines += verdict
        if args.all:
            lines += words.details(made, framework, markdown)
        answer = training_answer(made, verdict)
        record |= {"framework": framework, "explanation": made.told()}
    if args.how:
        code = _code(made, args.how)
        lines = [f"{args.how}. {code.change}", "", *code.lines(markdown)]
        record["code"] = code
    _print(args, msgspec.structs.asdict(answer) | record, lines)
    if args.verify and made:
        if args.wait_quiet:
            load.wait_until_quiet()
        for line in verify.lines(made, args.verify):
            print(line, flush=True)
    return options.OK


def _code(explanation_: Explanation | None, number: int) -> advice.Code:
    """The code of the answer's change of that number.

    Raises: Usage where the answer has no such change.
    """
    shown = explanation_.told() if explanation_ else None
    main = shown.main if shown else None
    actions = shown.actions if shown else []
    if main is None or not actions:
        raise options.Usage("this answer advises no change", wrong="--how")
    if number > len(actions):
        numbers = ", ".join(str(one) for one in range(1, len(actions) + 1))
        raise options.Usage(f"no change {number} in this answer; its changes: {numbers}", wrong=str(number), right="1")
    return advice.code(actions[number - 1].change, main.training, main.settings)


def answered(args: argparse.Namespace, again: str, network: Network | None = None) -> TrainingAnswer:
    """The answer to what the flags ask of one model; `network`: its layers, if it has no name to build it by. `again`: the
    command that asks the same, or "".

    Raises: options.Usage for flags that name nothing; Missing where no row tells it.
    """
    if network is None:
        check(args)
    request, _ = _asked(args, network)
    try:
        made, profiles, offer = _measured(args, request, sources(args.runs, args.gpu_profile), again)
    except Lacking as lacking:
        raise options.Missing(
            f"no rows of this machine tell it: {lacking.what}; measure=True measures them"
        ) from lacking
    return training_answer(made, _verdict(made, profiles, again, offer=offer))


def _verdict(made: Explanation, profiles: Sources, again: str, *, offer: str, markdown: bool = False) -> list[str]:
    """The lines of an answer. offer: how long measuring what is missing takes, in words, or ""."""
    can_check = not profiles.borrowed and not (made.gpu and facts.gpu_problem())
    return words.answer(made, again, offer, markdown, can_check)


def of_run(model: str, run: str) -> list[str]:
    """The answer for a model of a name by the rows of one run; without a GPU's, beside a stored one."""
    network = networks.find(model)
    training = Training(model, network.batch, network.samples, network.epochs)
    try:
        made = explanation.explain(Request(training), sources([run], stored_too=True))
    except Lacking as lacking:
        return [f"No verdict on {model}: {lacking}"]
    return words.answer(made, options.typed(f"python -m analysis.explain --model {model}"))


def _every_case(args: argparse.Namespace) -> int:
    """Every case's lines; as Markdown they are docs/cases.md."""
    of, markdown, replies = sources(args.runs, args.gpu_profile), args.format == "md", {}
    for name in published_cases.EVERY:
        args.case = name
        asked, case = _asked(args)
        replies[name] = cases.reply(case, of, asked)
    lines = [*CASES_PAGE.format(runs=" ".join(args.runs)).splitlines(), ""] if markdown else []
    lines += cases.overview(list(replies.values()), markdown)
    for reply in replies.values():
        lines += ["", *cases.lines(reply, markdown=markdown)]
    _print(args, replies, lines)
    return options.OK


def _measured(
    args: argparse.Namespace, request: Request, sources_: Sources, again: str
) -> tuple[Explanation, Sources, str]:
    """(explanation; its sources, with the rows that --measure added; time that measuring would take, in words, "" if nothing is
    missing). It measures only if the CPU's rows are, or would be, those of this machine.

    Raises: Lacking; Missing where nothing could be measured.
    """
    here = sources_.cpu.key == facts.describe().key
    try:
        explanation_ = explanation.explain(request, sources_)
    except Lacking:
        if not (here and args.measure):
            raise
        explanation_ = None
    has_gpu = not sources_.borrowed and not facts.gpu_problem()
    devices = ["cpu", "gpu:0"] if has_gpu else ["cpu"]
    undisturbed = explanation_.undisturbed if explanation_ else None
    parts = measure.parts(undisturbed, request, sources_, devices, everything=args.all) if here else []
    if explanation_ and not (args.measure and parts):
        if here and args.measure:
            print("Nothing is missing: this machine's rows have it all.", file=sys.stderr)
        measured = [side for side in explanation_.undisturbed.sides if side.cost.source == "measured"]
        expected_s = measure.seconds(parts, request)
        return explanation_, sources_, f"about {expected_s:.0f} s" if parts and len(measured) < len(devices) else ""
    if args.wait_quiet:
        load.wait_until_quiet()
    folders, failures = _run(parts, request, args.budget)
    sources_ = sources([*args.runs, *folders] if args.runs else [], args.gpu_profile)
    try:
        explanation_ = explanation.explain(request, sources_)
    except Lacking as lacking:
        if not failures:
            raise
        raise options.Missing(_reason(failures[0]), _retry(again, failures) or again) from lacking
    retry = _retry(again, failures)
    if not failures:  # else a missing part may be one that did not run
        failures = _unclear(parts, measure.parts(explanation_, request, sources_, devices, everything=args.all))
        retry = f"{again} --measure --wait-quiet" if failures else ""
    for failure in failures:
        print(_reason(failure), file=sys.stderr)
    if retry:
        print(f"  try: {retry}", file=sys.stderr)
    return explanation_, sources_, ""


def _reason(failure: Failure) -> str:
    return f"not measured: {failure.part}: {failure.reason}"


def _retry(again: str, failures: list[Failure]) -> str:
    """The command as it was typed, with the flag that measures what failed; "" where more time measures nothing more."""
    budget_s = max((failure.budget_s for failure in failures), default=0)
    return f"{again} --measure --budget {budget_s}" if budget_s else ""


def _unclear(parts: list[Part], missing: list[Part]) -> list[Failure]:
    """The parts that were measured and are missing still."""
    names = {part.name for part in parts} & {part.name for part in missing}
    reason = "too noisy to tell"
    return [Failure(part=name, reason=reason) for name in sorted(names)]


def _run(parts: list[Part], request: Request, budget_s: float) -> tuple[list[str], list[Failure]]:
    """Measures the parts within a budget: the folders with their rows, and what was not measured.

    Raises: KeyboardInterrupt with the files that have rows already.
    """
    folder = _local_folder() / time.strftime("explain-%Y%m%d-%H%M%S")
    expected_s = measure.seconds(parts, request)
    print(f"Measuring here for about {expected_s:.0f} s; rows go to {options.near(folder)}-*", file=sys.stderr)
    try:
        with terminal.doing("measuring"):
            failures = measure.run(parts, folder, TimeBudget(seconds=budget_s), _Progress().show)
    except KeyboardInterrupt as stop:
        files = sorted(folder.parent.glob(f"{folder.name}-*/*.jsonl"))
        with_rows = []
        for file in files:
            lines = file.read_bytes().count(b"\n")
            if lines > 1:  # the first line is of the run
                with_rows.append(options.near(file))
        if with_rows:
            stop.args = (f"with rows that the next answer takes: {', '.join(with_rows)}",)
        raise
    return list(map(str, folder.parent.glob(f"{folder.name}-*"))), failures


class _Progress:
    """Shows what is being measured: on a terminal a line that is overwritten, else a line when something new begins."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, doing: str, taken_s: float) -> None:
        on_terminal = terminal.now(f"{doing}, {taken_s:.0f} s")
        if not on_terminal and doing != self._last:
            print(doing, file=sys.stderr, flush=True)
        self._last = doing


def _framework(of: Sources) -> str:
    """Whether the framework used the GPU whose rows these are; of a stored one, first what this machine has."""
    source = of.gpu or of.cpu
    said = words.seen(source.measurements, source.machine, source.key)
    if not of.borrowed:
        return said
    problem = facts.gpu_problem()
    here = f"no GPU that can be measured ({problem})" if problem else "a GPU, which was left aside"
    return f"This machine has {here}. {said}"


def _print(args: argparse.Namespace, record: dict, lines: list[str]) -> None:
    if args.format == "json":
        # NumPy's numbers are floats that JSON does not know
        print(msgspec.json.encode(record, enc_hook=float).decode())
    else:
        print("\n".join(lines))


def sources(runs: Sequence[str], gpu_profile: str | None = None, stored_too: bool = False) -> Sources:
    """The profiles that the command names. Without a GPU here, and no rows named (or where a `stored_too` is asked for), the GPU
    is a stored one.

    Raises: Usage for a run that is not there, and for rows of several machines.
    """
    here = profile.read(*runs) if runs else _local()
    has_gpu, stored = any(map(is_gpu, here.devices)), gpu_profile
    may_borrow = not has_gpu and (stored_too or not runs)
    if not stored and may_borrow and facts.gpu_problem():
        stored = STORED_GPU
    if not stored:
        return Sources(here, here if has_gpu else None, prediction.predict)
    gpu = profile.read(stored)
    if not any(map(is_gpu, gpu.devices)):
        raise unknown_gpu(stored)
    return Sources(here, gpu, prediction.predict)


def _local_folder() -> pathlib.Path:
    return REPORTS / "local" / facts.describe().key


def _local() -> Profile:
    """The rows that were measured on this machine; an empty profile where there are none, which lacks everything."""
    try:
        return profile.read(str(_local_folder()))
    except FileNotFoundError:
        return Profile((), facts.describe())


def _asked(args: argparse.Namespace, network: Network | None = None):
    """(the request, the case or None); the request is None for a complaint without a training. network: the layers of
    the model that --model names, if they are known already.

    Raises: Usage for an unknown case or model; Missing for a model that cannot be built.
    """
    given = {
        "residence": args.input,
        "jit_compile": args.jit,
        "tf32": args.tf32,
        "precision": args.precision,
        "steps_per_execution": args.steps_per_execution and str(args.steps_per_execution),
    }
    given = {name: text for name, text in given.items() if text}
    prices = {name: price for name, price in (("gpu", args.price_gpu), ("cpu", args.price_cpu)) if price is not None}
    more: dict[str, Any] = {"switches": given, "validation": args.validation or 0, "prices": prices}
    if args.case:
        case = published_cases.EVERY[args.case]
        more |= {name: getattr(case, name) for name in ("varies", "sizes") if hasattr(case, name)}
        made = case.training and Request(_changed(case.training, args), **more)
        return made, case
    own = network
    if own is None and settings.is_user_model(args.model):
        begun = time.monotonic()
        own = describe(args.model, args.time_limit)
        more["starting_s"] = time.monotonic() - begun
    network = own or settings.network(args.model, own=True)
    given |= settings.changed({"precision": network.precision, **given})
    training = Training(args.model, network.batch, network.samples, network.epochs)
    if own or args.model not in networks.NETWORKS:  # a known network brings the numbers of its article
        more["assumed"] = tuple(name for name in ("batch", "samples", "epochs") if not getattr(args, name))
    return Request(_changed(training, args), own, **more), None


def _changed(training, args: argparse.Namespace):
    """The training with the command line's batch, samples, epochs and dtype in place of its own."""
    said = {name: getattr(args, name) for name in ("batch", "samples", "epochs", "dtype") if getattr(args, name)}
    if "samples" in said and "batch" not in said and training.batch >= training.samples:
        said["batch"] = said["samples"]  # all samples in one batch, as before
    return msgspec.structs.replace(training, **said)


def describe(model: str, time_limit_s: float) -> Network:
    """The layers of a user's own model, built in another process.

    Raises: Missing with what that process said, when the model cannot be built in time.
    """
    flags = f"-m workloads.describe --format json --time-limit {time_limit_s:g} --model".split()
    command = [sys.executable, *flags, model]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": ""})
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        told = dict(line.strip().partition(": ")[::2] for line in lines)
        said = told.get("error") or (lines or ["it said nothing"])[-1]
        tried = dict(itertools.pairwise(shlex.split(told.get("try", ""))))
        kind = options.Usage if done.returncode == options.USAGE else options.Missing
        tip = told.get("try", "") if "pip install" in told.get("try", "") else options.HELP
        right = tried.get("--model", "")
        if right not in ("", model):
            raise kind(said, tip, wrong=model, right=right, similar="model")
        if "--time-limit" in tried:
            raise kind(said, tip, wrong="--time-limit", right=f"--time-limit {tried['--time-limit']}")
        raise kind(said, tip)
    return msgspec.json.decode(done.stdout, type=Network)
