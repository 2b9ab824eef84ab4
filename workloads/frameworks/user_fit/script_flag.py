"""The training that --script and --fit name: a script of the user's, at one of its calls of fit."""

import shlex

from workloads import options


def training_name(command: str, fit: str | None) -> str:
    """The name by which rows have the training of a script.

    command: the script with its arguments, such as `train.py --lr 0.1`. fit: the place of the fit, its line or cell.line of a
    notebook; None for the only one.

    Raises: Usage for a fit that is not named, and for a script that is not there.
    """
    from workloads.records import script_files

    script, *arguments = script_files.typed_words(command)
    script_files.require(script)
    place = fit or _only_fit(script)
    _require_fit(script, place)
    return script_files.ScriptTraining(script=script, fit=place, arguments=tuple(arguments)).name


def _only_fit(script: str) -> str:
    """The place of the only call of fit in a script's text, as --fit takes it: its line, or cell.line of a notebook.

    Raises: Usage where there is none, or several.
    """
    from workloads.frameworks.user_fit import fit_places
    from workloads.records import source_trees

    places = fit_places.places(script)
    if len(places) == 1:
        return places[0]
    function = "" if places else source_trees.function_without_fit(script)
    if function:  # that builds a model
        message = f"{script} calls no fit itself; its model is typed --model {function}"
        raise options.Usage(message, wrong="--script", right=shlex.join(["--model", function]))
    if not places:
        message = f"{script} calls no fit itself; explain shows the first one that it comes to"
        error = options.Usage(message, instead=shlex.join(["python", "-m", "analysis.explain", script]))
    else:
        called = ", ".join(places)
        message = f"--script takes the line of its fit too; it calls one at {called}"
        error = options.Usage(message, right=f"--fit {places[0]}")
    error.is_example = True
    raise error


def _require_fit(script: str, fit: str) -> None:
    """Raises Usage for a line that a script does not have, or that cannot call fit while another line does.

    fit: the line, or cell.line of a notebook.
    """
    from workloads.frameworks.user_fit import fit_places
    from workloads.records import script_files

    places = fit_places.places(script)
    if places and not fit_places.may_call_fit(script, fit):
        raise script_files.no_such_fit(script, fit, places)
