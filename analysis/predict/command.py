"""Predicts a training's time from a profile; prints predictions, saves them, and compares saved ones with measurements."""

import argparse
import pathlib

import msgspec
from msgspec.structs import replace

from analysis import table
from analysis.explain.command import STORED_GPU, describe
from analysis.numbers import timed
from analysis.predict import calibration, held_out, prediction, profile
from analysis.predict.combine import WORDS
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.text import prediction_errors
from analysis.units import seconds
from kernels.problems import Training
from workloads import options, records
from workloads.corrections import closest
from workloads.machine.facts import now
from workloads.records import Settings, model_files
from workloads.records import settings as switches


def trainings(args: argparse.Namespace) -> list:
    """The trainings that the arguments name, each with its network where it is a user's own.

    Raises: options.Usage for an unknown model or a number that is none; Missing for a model that cannot be built.
    """
    found = []
    for name in options.words(args.model):
        own = describe(name, 60) if switches.is_user_model(name) else None
        network = own or switches.network(name, own=True)
        for samples in options.sizes(args.samples) if args.samples else [network.samples]:
            found += [
                (Training(name, batch, samples, args.epochs or network.epochs, args.dtype), own)
                for batch in options.sizes(args.batch)
            ]
    return found


def settings(args: argparse.Namespace, of: Profile) -> list:
    """The settings of each device asked for.

    Raises: options.Usage for a device that the profile lacks or a switch that is not known.
    """
    given = dict(text.partition("=")[::2] for text in args.switch)
    for name, text in given.items():
        if name not in switches.KNOWN or (switches.KNOWN[name] and text not in switches.KNOWN[name]):
            known = ", ".join(switches.KNOWN.get(name, ())) or ", ".join(switches.KNOWN)
            typed = f"{name}={text}"
            near = name if name in switches.KNOWN else closest(name, switches.KNOWN)
            value = closest(text, switches.KNOWN[near]) if near and switches.KNOWN[near] else text
            right = f"{near}={value}" if near and value else ""
            raise options.Usage(f"unknown switch {typed}; known: {known}", wrong=typed, right=right)
    devices = options.words(args.device) or [d for d in of.devices if d in ("cpu", "gpu:0")]
    devices = ["gpu:0" if d == "gpu" else d for d in devices]
    if unknown := set(devices) - set(of.devices):
        message = f"the profile has no rows of {min(unknown)}; it has {', '.join(of.devices)}"
        raise options.Usage(message, wrong=min(unknown).removesuffix(":0"))
    return [Settings(d, switches=switches.changed({"data": "synthetic", **given})) for d in devices]


def print_predictions(args: argparse.Namespace) -> int:
    """Prints a prediction for each training and device, and saves them.

    Raises: options.Usage for what cannot be predicted or saved.
    """
    if args.save and pathlib.PurePath(args.save).suffix == ".jsonl":
        raise options.Usage(
            f"{args.save}: a .jsonl file is read as rows wherever it lies, so predictions need another name",
            wrong=args.save,
            right=str(pathlib.PurePath(args.save).with_suffix(".ndjson")),
        )
    if args.save:
        require_predictions(args.save)
    of = profile.read(*args.profile)
    every = settings(args, of)
    try:
        made = [prediction.predict(t, s, of, own) for t, own in trainings(args) for s in every]
    except profile.Lacking as error:
        raise options.Usage(str(error), tip=error.commands[0]) from error
    except ValueError as error:
        raise options.Usage(str(error)) from error
    for p in made:
        print("\n".join(words(p)), end="\n\n")
    if args.save:
        save(args.save, made)
    return options.OK


def words(p: Prediction) -> list[str]:
    """A prediction in a few lines: the step by parts, the epoch, the job."""
    t = p.training
    return [
        f"{t.model} at batch {t.batch} on {p.settings.device}, {p.execution}: {timed(p.step_s)} a step",
        *(f"  {WORDS.get(name, name):<19} {seconds(e.value):>10}" for name, e in p.parts.items() if e.value),
        f"  an epoch of {t.samples:,} samples {timed(p.epoch_total_s)}; whole training, {t.epochs:,} epochs: {timed(p.job_s)}",
        *(f"  not known: {text}" for text in p.partial),
    ]


def require_predictions(path: str) -> None:
    """Raises options.Usage for a file with anything else than predictions. One that is empty or not there is free."""
    file = pathlib.Path(path)
    if file.is_dir() or not file.exists() or (file.is_file() and not file.stat().st_size):
        return
    try:
        prediction.load(path)
    except options.Usage as error:
        raise options.Usage(
            f"{error}; choose another name for --save", wrong=path, right="predictions.ndjson"
        ) from error


def save(path: str, made: list[Prediction]) -> None:
    """Appends predictions to a file.

    Raises: options.Usage where it cannot be written.
    """
    try:
        with open(path, "ab") as file:
            file.writelines(msgspec.json.encode(replace(p, saved_at=now())) + b"\n" for p in made)
    except OSError as error:
        raise options.Usage(f"cannot write {path}: {error.strerror}") from error


def checked(args: argparse.Namespace) -> int:
    """Prints predictions beside the steps that were measured."""
    path, *runs = args.check
    if not runs:
        raise options.Usage(f"--check {path} needs the RUN in which the trainings were measured")
    told = prediction_errors.check_lines(prediction.load(path), profile.read(*runs))
    print(*table.shown(told), sep="\n")
    return options.OK


def left_out(args: argparse.Namespace) -> int:
    """Prints the errors of predictions, and puts their table into a page."""
    of = profile.read(*args.leave_one_out)
    if not calibration.steps_seen(of):
        stored = options.near(options.stored_run())
        raise options.Missing(prediction_errors.SAID["nothing"], f"python -m analysis.predict --leave-one-out {stored}")
    told = prediction_errors.lines(of)
    print(*table.shown(told), sep="\n")
    if args.readme:
        run = args.leave_one_out[0]
        told = prediction_errors.brief(of, held_out.leave_one_out(of), prediction.saved_sets(pathlib.Path(run)))
        blocks = {"errors": table.shown(told, True)}
        table.put_blocks(pathlib.Path(args.readme), blocks, run, _readme_command(args))
    return options.OK


def _readme_command(args: argparse.Namespace) -> str:
    return f"analysis.predict --leave-one-out {pathlib.PurePath(args.leave_one_out[0])} --readme {pathlib.Path(args.readme).name}"


def body(args: argparse.Namespace) -> int:
    """Runs what the flags ask for and returns the exit status.

    Raises: options.Usage for flags that ask for nothing.
    """
    check(args)
    if args.leave_one_out:
        return left_out(args)
    if args.check:
        return checked(args)
    return print_predictions(args)


def check(args: argparse.Namespace) -> None:
    """Looks for what the flags name, as far as that takes no time.

    Raises: options.Usage for what is not there, and for flags that ask for nothing.
    """
    runs = args.leave_one_out or (args.check and args.check[1:]) or args.profile or []
    for run in runs:
        records.files_of(profile.file_of(run))
    if args.leave_one_out and args.readme:
        try:
            table.require_block(pathlib.Path(args.readme), ["errors"], args.leave_one_out[0], _readme_command(args))
        except ValueError as error:
            raise options.Usage(str(error), wrong="--readme") from error
    if args.leave_one_out or args.check:
        return
    if not args.model:
        raise options.Usage("say what to predict with --model and --profile, or --leave-one-out, or --check")
    for name in options.words(args.model):
        if switches.is_user_model(name):
            model_files.require(name)
        else:
            switches.network(name, own=True)
    if not args.profile:
        raise options.Usage("say with --profile what is measured of the machine", right=f"--profile {STORED_GPU}")
    settings(args, profile.read(*args.profile))
