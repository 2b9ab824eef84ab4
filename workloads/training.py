"""Trains models on the CPU and the GPU, and says what a step, an epoch, a fit and a whole training cost, and who wins."""

import argparse
import sys

from workloads import options
from workloads.printing import Lines, number, scaled, where
from workloads.session import Workload, resume_command, unfinished

QUESTION = "Does a GPU train a model sooner, start-up included?"
EXAMPLE = "python -m workloads.training --model cifar10-cnn --samples 1000 --epochs 2"
EXAMPLES = (EXAMPLE, "python -m workloads.training --model file.py:function --batch 32 256")
LONG = """Trains models on the CPU and on the GPU, a process for each device and set of options: milliseconds a step, an epoch
and a fit, told by later epochs of many and of few steps, what compilation and start-up cost, and the whole training. A model
is NAME (unknown names list those that there are), mlp with --inputs --width --depth --outputs, fashion-mlp with --hidden-layers,
file.py:function, package.module:function, or file.keras. Flags that take several words run every combination."""
FLAGS = """
# the model and its data
--model NAME ...       the models to train (cifar10-cnn)
--inputs N ...         inputs of mlp (784)
--width N ...          units of its hidden layers (500)
--depth N ...          its hidden layers (2)
--outputs N ...        its classes (10)
--hidden-layers N ...  hidden layers of fashion-mlp (5)
--batch N ...          samples a step (32; peaks: all of them)
# or
--samples N ...        samples an epoch (default: as --steps says)
--steps N              steps an epoch (those of 2,048 samples, 8 to 256; peaks: 1)
# the model and its data
--epochs N ...         epochs a fit (1; peaks: 100)
--dtypes TYPE ...      of the inputs: float32, float64 (the articles'), uint8 (float32)
--data {synthetic,real} =synthetic  made-up samples of the same shape, or the real ones, downloaded (synthetic)
--targets TYPE ...     of a regression's targets: float32, float64 (float32)
# how it is trained
--residence WORD ...   where the samples live: numpy tf.data prefetch generator; resident (the whole set on the device); fed
                       (to a bare loop, each step) (numpy)
--jit WORD ...         auto on off: XLA (auto)
--steps-per-execution WORD ...  steps that Keras runs in one call (1)
--precision WORD ...   float32 mixed_bfloat16 mixed_float16 (float32)
--tf32 WORD ...        on off: on a GPU (on)
--dropout WORD ...     on off (on)
--shuffle WORD ...     on off (on)
--keras-backend WORD ...  tensorflow jax torch (tensorflow)
--onednn WORD ...      on off: TF_ENABLE_ONEDNN_OPTS, on the CPU (TensorFlow's default)
--gpus N ...           GPUs that share each batch, by keras.distribution.DataParallel with --keras-backend jax or
                       tf.distribute.MirroredStrategy with tensorflow (1)
# rows of a study or of predictions
--study NAME ...       rows made for a question, instead of the above: seeds, batches, ... (an unknown one lists them), or all
--predicted FILE       the trainings of predictions that `analysis.predict --save FILE` wrote, instead of the above;
                       `analysis.predict --check FILE RUN` then compares them"""


def rows(args: argparse.Namespace, here) -> list:
    """The trainings in every way asked for, or those of --study; the products for their budget are known when they have run.

    Raises: Usage for what trains nothing; Missing for a device or library that is not here.
    """
    from workloads.frameworks import grid

    if args.predicted is None or args.study:
        return grid.rows(args, here)
    from analysis.predict import prediction

    return grid.predicted(args, here, prediction.load, prediction.MAKES)


def products(here, done: list) -> list:
    """The library products that the steps measured so far are made of and that have no row yet."""
    from analysis.predict import budget
    from workloads.records import Row, Settings, distinct

    found = []
    for m in done:
        if m.problem.op == "training" and m.ok:
            kernel = "matmul/cupy/cublas" if m.on_gpu else "matmul/numpy/blas"
            settings = Settings(m.device, None if m.on_gpu else m.threads or here.cores)
            found += [Row(kernel, problem, settings) for problem in budget.gemms(m)]
    return distinct(found, done)


def _measured(args: argparse.Namespace, run, shown):
    """Runs the trainings, those of one environment together, and then their products; the sweep.Outcome. A study measures
    no products: its rows are many, and their budgets are another command's.

    Raises: Missing without TensorFlow, or when real data was asked for and cannot be had.
    """
    from workloads.frameworks import forecast, grid, studies
    from workloads.records import settings as switches

    every = rows(args, run.machine)
    grid.require_keras({switches.of(row).keras_backend for row in every} or {"tensorflow"})
    asked = options.words(args.study)
    # A study of several GPUs goes case by case, so that a stopped run has whole cases; its two processes live side by side.
    wanted = every if asked == [studies.DATA_PARALLEL] else forecast.in_turns(every)
    beside = studies.experiments(asked)
    outcome = WORKLOAD.sweep(args, run, shown, wanted) if wanted or not beside else None
    return _experiments(beside, outcome, args, run, shown)


def _experiments(names: list[str], outcome, args: argparse.Namespace, run, shown):
    """Measures the studies whose rows run side by side, each into its own file; returns all rows in one Outcome."""
    import time

    from workloads.frameworks import side_by_side

    begin, args = time.monotonic(), argparse.Namespace(**vars(args))
    limit = args.stop_after
    for name in names:
        if outcome is not None:
            args.output = str(outcome.path.parent)
            if outcome.stopped:
                outcome.left += len(side_by_side.rows(name, args, run.machine))
                continue
            args.stop_after = limit and max(1e-3, limit - (time.monotonic() - begin))
        outcome = side_by_side.measure(name, args, run, shown).after(outcome)
    return outcome


def _refine(args: argparse.Namespace, here, done: list) -> list:
    return [] if args.study or args.predicted else products(here, done)


def _dry_run(rows: list, args: argparse.Namespace, here) -> None:
    from workloads.frameworks import forecast

    print("\n".join(forecast.lines(rows, args, here)))


class Table(Lines):
    """A line a training on 120 columns. The costs of a step, an epoch and a fit come from later epochs
    (analysis.training.costs); without these, ms/step is that of a whole fit."""

    HEAD = (
        "model 12< | batch 5 | samples 7 | ep 4 | where 11< | how 9< | ms/step 7 | ms/ep 6 | ms/fit 6 | comp. s 7 | "
        "start s 7 | whole s 7 | notes 5<"
    )
    LEAST = "ms/fit | ms/ep | ep | start s | comp. s | samples | notes"

    ABOUT = (
        "<: less than this, maybe nothing; ms/step: a step; ms/ep: an epoch beside its steps; ms/fit: a fit beside its epochs; "
        "comp. s: compilation; start s: importing the library and starting the device; whole s: start-up, building, compilation "
        "and all epochs, in a process of its own."
    )

    def __init__(self, args=None, here=None):
        super().__init__(args)
        self._all: list = []

    def wanted(self, m) -> bool:
        """Only trainings have a line; the products measured for a budget appear in the budget."""
        if m.problem.op == "training":
            self._all.append(m)
        return m.problem.op == "training"

    def cells(self, m) -> list[str]:
        from analysis import numbers
        from analysis.stats import of
        from analysis.text import rows as row_words
        from analysis.training import costs

        p = m.problem
        start = [p.model, str(p.batch), str(p.samples), str(p.epochs), where(m), row_words.way(m)]
        began = scaled(costs.start(m, self._all))
        if not m.ok:
            return [*start, m.status, "-", "-", "-", began, "-", m.reason]
        cost = costs.measured(m, self._all)
        waited = m.on("host-latency")  # None of a row that starts fresh processes and trains in none
        whole = m.variant == "trial"  # its samples are whole trainings, which the notes say

        def told(e) -> str:
            if not e:
                return "-"
            end = numbers.less_than(e)
            return number(e.value * 1e3) if end is None else f"<{number(end * 1e3)}"

        step = told(cost.step) if cost else told(waited and not whole and of(waited))
        by = costs.parts(cost, p.epochs, p.steps) if cost else {}
        return [
            *start,
            step,
            told(cost and cost.epoch),
            told(by.get("data-set setup")),
            scaled(cost and cost.compile),
            began,
            scaled(cost and costs.whole_training(cost, p.epochs, p.steps)),
            " ".join(row_words.notes(m, cost.step if cost else None)),
        ]


def answer(args: argparse.Namespace, outcome) -> None:
    """Prints the sentences on trainings, then the budgets of steps that are sound; with --verbose all budgets."""
    from analysis.predict import budget, profile
    from analysis.report.sections.several_gpus import trainings
    from analysis.text import budget as budget_words
    from analysis.text import several_gpus, training

    rows_ = outcome.measurements
    parts = [training.lines, training.side_by_side, several_gpus.training_lines]
    told = unfinished(outcome) + [line for lines in parts for line in lines(rows_)]
    if several := trainings(rows_):
        told += ["", *several.text()]
    made = budget.budgets(profile.Profile(rows_)) if any(m.problem.op == "matmul" for m in rows_) else []
    wanted = [b for b in made if args.verbose or b.sound]
    budgets = list(map(budget_words.sentence, wanted))
    if len(wanted) < len(made):
        command = f"{options.typed(resume_command(outcome.run.command, outcome.path.parent))} -v"
        budgets.append(f"What a step is made of, from these rows, nothing measured again: {command}")
    if told or budgets:
        print("", *told, *([""] if told and budgets else []), *budgets, sep="\n")


COMMAND = "training", QUESTION, LONG, EXAMPLES, "model batch samples epochs", FLAGS
WORKLOAD = Workload(*COMMAND, rows, Table, answer, _refine, _measured, _dry_run, of_models=True)
main, parser, run = WORKLOAD.main, WORKLOAD.parser, WORKLOAD.run

if __name__ == "__main__":
    sys.exit(main())
