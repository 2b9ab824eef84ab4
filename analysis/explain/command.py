"""Explains a training, an article's, a complaint's or your own model's: which device wins, why, and what would help."""

import argparse
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from workloads import ROOT, options, terminal

if TYPE_CHECKING:
    from analysis.explain.explanation import Explanation, Request, Sources
    from analysis.explain.measure import Part
    from analysis.predict.profile import Profile
    from kernels.networks import Network

QUESTION = "Is a GPU worth it for my model, and why?"
EXAMPLE = "python -m analysis.explain --case S4 reports/nvidia-h200"
LONG = """Says of a training on the CPU and the GPU who finishes first, why, from where that changes, and what would help. The
training is your own model's (--model), an article's (--case S0 S1a S1b S2 S3a S3b S3c S3d S3e S4) or a real complaint's (--case
keras-249 and others; an unknown one lists them). It reads the rows of RUN and times nothing, but for --measure and --verify."""
STORED_GPU = "reports/nvidia-h200"
FORMATS = ("table", "md", "json")
INPUTS = ("numpy", "tf.data", "generator", "prefetch")
_DESCRIBING_S = 60
_VERIFIED = 3  # changes
_BEGUN = time.monotonic()
_ANSWERING_S = 10  # seconds of a budget that are kept for the answer
ALL = "all"  # the cases
CASES_PAGE = """# Articles and complaints, answered

`python -m analysis.explain --case all --format md {runs} > docs/cases.md` writes this page.
"""


def price(text: str) -> float:
    """Money an hour: `3.5`, `3,50`, `$3`, `2 EUR/h`.

    Raises: Usage for what is no price, or two.
    """
    match = re.fullmatch(
        r"[$€£]?\s*(\d{1,9}(?:[.,]\d{1,6})?)\s*(?:[$€£]|usd|eur|gbp)?\s*(?:/?\s*h(?:our)?)?", text.lower()
    )
    if not match:
        raise options.Usage(f"{text!r} is no price of an hour; write it like 3.50", similar=("", text, "3.50"))
    if re.search(r",\d{3}$", match[1]):
        whole = match[1].replace(",", "")
        raise options.Usage(f"{text!r} may be {whole} or {match[1].replace(',', '.')}", similar=("", match[1], whole))
    return float(match[1].replace(",", "."))


def parser() -> options.Parser:
    made = options.parser(
        "analysis.explain",
        LONG,
        EXAMPLE,
        "python -m analysis.explain --model file.py:function --batch 32 --measure",
        question=QUESTION,
        needs="model case batch samples epochs gpu-profile price-gpu measure all",
    )
    made.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a result file, a run folder or a machine folder (default: the runs of this machine under reports/local)",
    )
    options.add(
        made.add_argument_group("what to explain"),
        f"""
--case ID        S0, keras-249 and others, or all
--model NAME     a name, file.py:function or file.keras
--batch N        samples a step (32)
--samples N      samples an epoch (the model's own)
--epochs N       epochs (the model's own)
--validation N   samples evaluated after each epoch (none)
--input {{{",".join(INPUTS)}}}  how the samples reach the fit (numpy)
--dtype {{float32,float64,uint8}}  of the samples (float32)
--jit {{auto,on,off}}  XLA, by compile()'s jit_compile (auto)
--steps-per-execution N  as given to compile() (1)
--tf32 {{on,off}}  TF32 on a GPU (on)
--precision {{float32,mixed_bfloat16,mixed_float16}}  Keras's dtype policy (float32)""",
    )
    options.add(
        made.add_argument_group("with what"),
        f"""
--gpu-profile RUN  take the GPU from the rows of another machine
--price-gpu MONEY  an hour of the machine with the GPU: 3.50, $3 or 3,50
--price-cpu MONEY  an hour of the machine without it
--time-limit S ={_DESCRIBING_S}  seconds that building your model may take ({_DESCRIBING_S})""",
        MONEY=price,
    )
    more = made.add_argument_group("more than an answer")
    options.add(
        more,
        f"""
--all              everything behind the answer: parts, crossovers, memory, cost, all changes
--measure          first measure here what the answer lacks
--budget S =90     seconds that --measure may take (90)
--format {{{",".join(FORMATS)}}} =table  what stdout gets (table)""",
    )
    made.set_defaults(stored_gpu=False)
    more.add_argument(
        "--verify",
        metavar="N",
        nargs="?",
        type=options.number,
        const=_VERIFIED,
        help=f"measure the N best changes here, beside what was predicted ({_VERIFIED})",
    )
    return made


def _body(args: argparse.Namespace, again: str) -> int:
    from analysis.predict.profile import Lacking
    from workloads.records import published_cases

    first = next((run for run in args.runs if not os.path.exists(run)), "")
    if first.isdecimal():
        raise options.Usage(f"{first!r} is no run; a flag here takes one number", similar=("", first, ""))
    if not args.case and not args.model:
        flag = "--case" if first in published_cases.EVERY else "--model"
        raise options.Usage(
            "name what to explain, with --case or --model", similar=("", first, f"{flag} {first}") if first else None
        )
    if args.case and args.model:
        raise options.Usage("--case brings its own model; leave one of them out", similar=("", "--case", ""))
    try:
        return _explained(args, again)
    except Lacking as lacking:
        raise options.Missing(f"no rows of this machine tell it: {lacking.what}", f"{again} --measure") from lacking


def _explained(args: argparse.Namespace, again: str) -> int:
    from analysis.explain import verify as verifying
    from analysis.text import cases
    from analysis.text import explanation as words

    if args.case == ALL:
        return _every_case(args)
    asked, case = _asked(args)
    of, made, lines, record, markdown = sources(args), None, [], {}, args.format == "md"
    if case is not None:
        reply = cases.reply(case, of, asked)
        lines = cases.lines(reply, again * bool(asked), markdown)
        record = {"case": case.name, "answer": reply}
    if case is None or (asked and (args.all or args.verify or args.format == "json")):
        made, of, offer = _measured(args, asked, of)
        verdict, framework = words.answer(made, again, offer), _framework(of)
        said = words.answer(made, again, offer, True) if markdown else verdict
        lines += [*[""] * bool(lines), *said, *(words.details(made, framework, markdown) if args.all else ())]
        record |= {"framework": framework, "verdict": verdict, "explanation": made.told()}
        record |= {"finishes_first_from": made.turns if made.both else None}
    _print(args, record, lines)
    if args.verify and made:
        for line in verifying.lines(made, args.verify):
            print(line, flush=True)
    return options.OK


def of_run(model: str, run: str) -> list[str]:
    """The answer for a model of a name by the rows of one run; without a GPU's, beside a stored one."""
    from analysis.explain import explanation
    from analysis.predict.profile import Lacking
    from analysis.text import explanation as words

    args = parser().parse_args(["--model", model, run])
    args.stored_gpu = True
    try:
        made = explanation.explain(_asked(args)[0], sources(args))
    except Lacking as lacking:
        return [f"No verdict on {model}: {lacking}"]
    return words.answer(made, options.typed(f"python -m analysis.explain --model {model}"))


def _every_case(args: argparse.Namespace) -> int:
    """Every case's lines; as Markdown they are docs/cases.md."""
    from analysis.text import cases
    from workloads.records import published_cases

    of, markdown, replies = sources(args), args.format == "md", {}
    said = CASES_PAGE.format(runs=" ".join(args.runs)).splitlines() if markdown else []
    for name in published_cases.EVERY:
        args.case = name
        asked, case = _asked(args)
        replies[name] = cases.reply(case, of, asked)
        said += [*[""] * bool(said and said[-1]), *cases.lines(replies[name], markdown=markdown)]
    _print(args, replies, said)
    return options.OK


def _measured(args: argparse.Namespace, asked: "Request", of: "Sources") -> "tuple[Explanation, Sources, str]":
    """(the explanation, its sources with what --measure added, how long that would take where it was not asked for and something
    is missing). Only where the CPU's rows are, or would be, those of this machine is there anything to measure."""
    from analysis.explain import explanation, measure
    from analysis.predict.profile import Lacking
    from workloads.machine import facts

    here = of.cpu.key == facts.describe().key
    try:
        made = explanation.explain(asked, of)
    except Lacking:
        if not (here and args.measure):
            raise
        made = None
    gpu_here = not of.borrowed and not facts.gpu_problem()
    parts = measure.parts(made, asked, of, ["cpu", *["gpu:0"] * gpu_here]) if here else []
    if made and not (args.measure and parts):
        if here and args.measure:
            print("Nothing is missing: this machine's rows have it all.", file=sys.stderr)
        measured = [s for s in made.sides if s.cost.source == "measured"]
        return made, of, f"about {measure.seconds(parts):.0f} s" if parts and len(measured) < 1 + gpu_here else ""
    of = sources(args, *_run(parts, args.budget))
    return explanation.explain(asked, of), of, ""


def _run(parts: "list[Part]", budget: float) -> list[str]:
    """Measures the parts as far as the budget goes: the folders with their rows. What was not reached is said on stderr.

    Raises: KeyboardInterrupt with the files that have rows already.
    """
    from analysis.explain import measure

    folder = _local_folder() / time.strftime("explain-%Y%m%d-%H%M%S")
    left = max(1.0, budget - (time.monotonic() - _BEGUN) - _ANSWERING_S)
    try:
        with terminal.doing("measuring"):
            left_out = measure.run(parts, folder, left, _progress)
    except KeyboardInterrupt as stop:
        files = sorted(folder.parent.glob(f"{folder.name}-*/*.jsonl"))
        kept = [
            options.near(file) for file in files if file.read_bytes().count(b"\n") > 1
        ]  # the first line is of the run
        if kept:
            stop.args = (f"with rows that the next answer takes: {', '.join(kept)}",)
        raise
    print(*(f"not measured: {reason}" for reason in left_out), sep="\n", end="\n" * bool(left_out), file=sys.stderr)
    return list(map(str, folder.parent.glob(f"{folder.name}-*")))


def _progress(text: str) -> None:
    """On a terminal what fills the silence; else a line where something begins."""
    shown = "/" in text.split(" ")[0] and terminal.now(text)
    if not shown and not text.split(": ")[-1][0].isdigit():
        print(text, file=sys.stderr, flush=True)


def _framework(of: "Sources") -> str:
    """Whether the framework used the GPU whose rows these are; of a stored one, first what this machine has."""
    from analysis.text import explanation as words
    from workloads.machine import facts

    source = of.gpu or of.cpu
    said = words.seen(source.measurements, source.machine, source.key)
    if not of.borrowed:
        return said
    problem = facts.gpu_problem()
    here = f"no GPU that can be measured ({problem})" if problem else "a GPU, which was left aside"
    return f"This machine has {here}. {said}"


def _print(args: argparse.Namespace, record: dict, lines: list[str]) -> None:
    import msgspec

    if args.format == "json":
        # NumPy's numbers are floats that JSON does not know
        print(msgspec.json.encode(record, enc_hook=float).decode())
    else:
        print("\n".join(lines))


def sources(args: argparse.Namespace, *more: str) -> "Sources":
    """The profiles that the command names, with the runs that were measured since. Without a GPU here, and no other rows named,
    the GPU is a stored one.

    Raises: Usage for a run that is not there, and for rows of several machines.
    """
    from analysis.explain.explanation import Sources
    from analysis.predict import profile
    from analysis.predict.prediction import predict
    from analysis.stats import is_gpu
    from workloads.machine import facts

    here = profile.read(*args.runs, *more) if args.runs else _local(profile)
    has_gpu, stored = any(map(is_gpu, here.devices)), args.gpu_profile
    may_borrow = not has_gpu and (args.stored_gpu or not args.runs)
    if not stored and may_borrow and facts.gpu_problem() and (ROOT / STORED_GPU).exists():
        stored = str(ROOT / STORED_GPU)
    if not stored:
        return Sources(here, here if has_gpu else None, predict)
    gpu = profile.read(stored)
    if not any(map(is_gpu, gpu.devices)):
        raise options.Usage(
            f"{args.gpu_profile} has no row of a GPU", similar=("", "--gpu-profile", f"--gpu-profile {STORED_GPU}")
        )
    return Sources(here, gpu, predict)


def _local_folder() -> pathlib.Path:
    from workloads.machine import facts

    return ROOT / "reports/local" / facts.describe().key


def _local(profile) -> "Profile":
    """The rows that were measured on this machine; an empty profile where there are none, which lacks everything."""
    from workloads.machine import facts

    try:
        return profile.read(str(_local_folder()))
    except FileNotFoundError:
        return profile.Profile((), facts.describe())


def _asked(args: argparse.Namespace):
    """(what is asked, the case or None); a complaint about no training has None for what is asked.

    Raises: Usage for an unknown case or model; Missing for a model that cannot be built.
    """
    from analysis.explain import explanation
    from kernels.problems import Training
    from workloads.records import published_cases, settings

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
        known = published_cases.EVERY
        if args.case not in known:
            raise options.unknown("case", args.case, sorted(known))
        case = known[args.case]
        more |= {name: getattr(case, name) for name in ("varies", "sizes") if hasattr(case, name)}
        made = case.training and explanation.Request(_changed(case.training, args), **more)
        return made, case
    own = describe(args.model, args.time_limit) if settings.is_user_model(args.model) else None
    network = own or settings.network(args.model, own=True)
    given |= settings.changed({"precision": network.precision, **given})
    training = Training(args.model, network.batch, network.samples, network.epochs)
    return explanation.Request(_changed(training, args), own, **more), None


def _changed(training, args: argparse.Namespace):
    """The training with what the command says otherwise."""
    import msgspec

    said = {name: getattr(args, name) for name in ("batch", "samples", "epochs", "dtype") if getattr(args, name)}
    if "samples" in said and "batch" not in said and training.batch >= training.samples:
        said["batch"] = said["samples"]  # all samples in one batch, as before
    return msgspec.structs.replace(training, **said)


def describe(model: str, time_limit_s: float) -> "Network":
    """The layers of a user's own model, built in another process.

    Raises: Missing with what that process said, when the model cannot be built in time.
    """
    import msgspec

    from kernels.networks import Network

    words = f"-m workloads.describe --format json --time-limit {time_limit_s:g} --model".split()
    command = [sys.executable, *words, model]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": ""})
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        told = dict(line.strip().partition(": ")[::2] for line in lines)
        said = told.get("error") or (lines or ["it said nothing"])[-1]
        tried = dict(itertools.pairwise(shlex.split(told.get("try", ""))))
        similar = ("model" * ("tip" in told), model, tried.get("--model", model))
        if similar[2] == model and "--time-limit" in tried:
            similar = ("", "--time-limit", f"--time-limit {tried['--time-limit']}")
        kind = options.Usage if done.returncode == options.USAGE else options.Missing
        raise kind(said, told.get("try", ""), similar)
    return msgspec.json.decode(done.stdout, type=Network)


def main(argv: list[str] | None = None) -> int:
    return options.command(parser(), argv, lambda args: _body(args, _again(argv)))


def _again(argv: list[str] | None) -> str:
    """The command as it was typed, without the flags that say what more to do with its answer."""
    given = sys.argv[1:] if argv is None else argv
    words = parser().without(given, "--all", "--measure", "--budget", "--verify")
    return options.typed(options.command_line("analysis.explain", words))
