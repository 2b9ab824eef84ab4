"""Explains a training, an article's, a complaint's or your own model's: which device wins, why, and what would help."""

import argparse
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from workloads import options

if TYPE_CHECKING:
    from analysis.explain.explanation import Sources
    from analysis.predict.profile import Profile
    from kernels.networks import Network

QUESTION = "Is a GPU worth it for my model, and why?"
EXAMPLE = "python -m analysis.explain --case S4 reports/nvidia-h200"
LONG = """Says of a training on the CPU and the GPU who wins and why: whether the framework used the GPU, a verdict in five
sentences, the step part by part, where the winner changes, memory, cost, and what would help most. The training is an article's
(--case S0 S1a S1b S2 S3a S3b S3c S3d S3e S4), a real complaint's (--case keras-249 and others; an unknown one lists them), or
your own model's (--model). Everything is predicted from the rows of RUN; nothing is timed, but for --verify."""
INPUTS = ("numpy", "tf.data", "generator", "prefetch")
_DESCRIBING_S = 60


def parser() -> options.Parser:
    """The command line of python -m analysis.explain."""
    made = options.parser(
        "analysis.explain",
        LONG,
        EXAMPLE,
        "python -m analysis.explain --model file.py:function --batch 32 --gpu-profile reports/nvidia-h200",
        question=QUESTION,
        needs="model case batch samples epochs gpu-profile price-gpu price-cpu",
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
--case ID        an article's system or a complaint
--model NAME     a name, package.module:function that builds a model, or file.keras
--batch N        samples a step (32)
--samples N      samples an epoch (the model's own)
--epochs N       epochs (the model's own)
--validation N   samples evaluated after each epoch (none)
--input {{{",".join(INPUTS)}}}  how the samples reach the fit (numpy)
--dtype {{float32,float64,uint8}}  of the samples (float32)
--jit {{auto,on,off}}  jit_compile (auto)
--steps-per-execution N  as given to compile() (1)
--tf32 {{on,off}}  TF32 on a GPU (on)
--precision {{float32,mixed_bfloat16,mixed_float16}}  Keras's dtype policy (float32)""",
    )
    options.add(
        made.add_argument_group("with what"),
        f"""
--gpu-profile RUN  take the GPU from these rows of another machine, the CPU from RUN
--mixed            take rows of several machines as one profile
--price-gpu MONEY  an hour of the machine with the GPU
--price-cpu MONEY  an hour of the machine without
--verify           measure the best what-ifs here, beside what was predicted
--time-limit S ={_DESCRIBING_S}  seconds that building your model may take ({_DESCRIBING_S})
--format {{table,json}} =table  what stdout gets (table)""",
        MONEY=options.price,
        S=options.number,
    )
    return made


def _body(args: argparse.Namespace) -> int:
    from analysis.predict.profile import Lacking

    if not args.case and not args.model:
        raise options.Usage("name what to explain, with --case or --model")
    if args.case and args.model:
        raise options.Usage("--case brings its own model; leave one of --case and --model out")
    try:
        return _explained(args)
    except Lacking as lacking:
        first = lacking.commands[0] if lacking.commands else "python -m workloads.suite --quick"
        raise options.Missing(str(lacking), first) from lacking


def _explained(args: argparse.Namespace) -> int:
    from analysis.explain import explanation
    from analysis.explain import verify as verifying
    from analysis.text import cases as complaints
    from analysis.text import explanation as explanation_words

    asked, case = _asked(args)
    of = sources(args)
    if case is not None and asked is None:  # a complaint about no training
        told = complaints.apart(case, of)
        _print(
            args, {"case": case.name, "answer": told}, explanation_words.headed(f"{case.name}: {case.title}", told)[1:]
        )
        return options.OK
    made = explanation.explain(asked, of)
    framework = _framework(of)
    more = complaints.sections(case, made, of) if case is not None else ()
    told = explanation_words.lines(made, framework, more, complaints.checked(case, made, of))
    record = {"framework": framework, "verdict": explanation_words.verdict(made), "explanation": made.told()}
    _print(args, record, told)
    if args.verify:
        for line in verifying.lines(made):
            print(line, flush=True)
    return options.OK


def _framework(of: "Sources") -> str:
    """Whether the framework used the GPU whose rows these are; of a stored one, first what this machine has."""
    from analysis.text import explanation as explanation_words
    from workloads.machine import facts

    source = of.gpu or of.cpu
    said = explanation_words.seen(source.measurements, source.machine, source.key)
    if not of.borrowed:
        return said
    problem = facts.gpu_problem()
    here = f"no GPU that can be measured ({problem})" if problem else "a GPU, which was left aside"
    return f"This machine has {here}. {said}"


def _print(args: argparse.Namespace, record: dict, told: list[str]) -> None:
    import msgspec

    if args.format == "json":
        # NumPy's numbers are floats that JSON does not know
        print(msgspec.json.encode(record, enc_hook=float).decode())
    else:
        print("\n".join(told))


def sources(args: argparse.Namespace) -> "Sources":
    """The profiles that the command names.

    Raises: Usage for a run that is not there, and for rows of several machines unless they are mixed on purpose.
    """
    from analysis.explain.explanation import Sources
    from analysis.predict import profile
    from analysis.predict.prediction import predict

    here = profile.read(*args.runs, mixed=args.mixed) if args.runs else _local(profile)
    if args.gpu_profile:
        gpu = profile.read(args.gpu_profile, mixed=args.mixed)
        if not any(device != "cpu" for device in gpu.devices):
            raise options.Usage(f"{args.gpu_profile} has no row of a GPU", EXAMPLE)
        return Sources(here, gpu, predict)
    return Sources(here, here if any(device != "cpu" for device in here.devices) else None, predict)


def _local(profile) -> "Profile":
    """The rows that were measured on this machine; an empty profile where there are none, which lacks everything."""
    from workloads.machine import facts

    here = facts.describe()
    folder = pathlib.Path("reports/local") / here.key
    try:
        return profile.read(str(folder))
    except FileNotFoundError:
        return profile.profile((), here)


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
        case = _case(args.case)
        if isinstance(case, published_cases.Complaint):
            if not case.reported:
                return None, case
            training, more = case.reported[0].training, {**more, "varies": case.varies, "sizes": case.sizes}
        elif isinstance(case, published_cases.Question):
            training = case.training
        else:
            training = Training(case.model, case.batch, case.samples, case.epochs, case.dtype)
        return explanation.Request(_changed(training, args), **more), case
    own = describe(args.model, args.time_limit) if settings.is_user_model(args.model) else None
    network = own or settings.network(args.model, own=True)
    training = Training(args.model, network.batch, network.samples, network.epochs)
    made = explanation.Request(_changed(training, args), own, **more)
    return made, None


def _changed(training, args: argparse.Namespace):
    """The training with what the command says otherwise."""
    import msgspec

    said = {name: getattr(args, name) for name in ("batch", "samples", "epochs", "dtype") if getattr(args, name)}
    if "samples" in said and "batch" not in said and training.batch >= training.samples:
        said["batch"] = said["samples"]  # all samples in one batch, as before
    return msgspec.structs.replace(training, **said)


def _case(name: str):
    from workloads.records import published_cases

    known = {**published_cases.BY_NAME, **published_cases.QUESTIONS_BY_NAME, **published_cases.COMPLAINTS_BY_NAME}
    if name not in known:
        raise options.unknown("case", name, sorted(known))
    return known[name]


def describe(model: str, time_limit_s: float) -> "Network":
    """The layers of a user's own model, built in another process.

    Raises: Missing with what that process said, when the model cannot be built in time.
    """
    import msgspec

    from kernels.networks import Network

    command = [
        sys.executable,
        "-m",
        "workloads.describe",
        "--model",
        model,
        "--format",
        "json",
        "--time-limit",
        str(int(time_limit_s)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = next(
            (line.removeprefix("error: ") for line in lines if line.startswith("error: ")),
            (lines or ["it said nothing"])[-1],
        )
        tip = next((line.partition("try: ")[2] for line in lines if line.strip().startswith("try: ")), "")
        raise (options.Usage if done.returncode == options.USAGE else options.Missing)(said, tip)
    return msgspec.json.decode(done.stdout, type=Network)


def main(argv: list[str] | None = None) -> int:
    return options.command(parser(), argv, _body)
