"""What a user's own model is by the words of `--model`, as far as its files say: nothing of them is imported or run."""

import ast
import importlib.util
import os
import re
import zipfile
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from analysis import units
from kernels import networks
from workloads import options
from workloads.corrections.likeness import closest, misspelled, similar_path
from workloads.records import command_lines, other_libraries, regular_files, source_trees

_FUNCTION = re.compile(r"(?:[^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*")
# What a module may make names or submodules with that its source does not spell.
_MAKES_NAMES = {"globals", "locals", "vars", "exec", "eval", "setattr", "__getattr__", "__path__", "modules", "*"}
# What the files of other programs are, by their endings, the longest first.
_OTHER_FORMATS = {
    ".weights.h5": "a file of weights only, without layers",
    ".h5": "of Keras's old format",
    ".hdf5": "of Keras's old format",
    ".onnx": "an ONNX model",
    ".pb": "a TensorFlow graph",
    ".tflite": "a TensorFlow Lite model",
    ".pt": "a PyTorch model",
    ".pth": "a PyTorch model",
    ".safetensors": "a file of weights only, without layers",
    ".ckpt": "a file of weights only, without layers",
    ".bin": "a file of weights only, without layers",
    ".json": "a JSON file, without weights or what compile() got",
    ".yaml": "a YAML file",
    ".yml": "a YAML file",
    ".csv": "a table of data",
    ".parquet": "a table of data",
    ".npz": "a file of arrays",
    ".npy": "a file of arrays",
    ".ipynb": "a notebook",
}
_DATA = (".csv", ".parquet", ".npz", ".npy")  # the endings of files that are no model's
_ADDRESS = re.compile(r"\w+://|www\.|hf:")
# A .keras file may be larger by this factor when it is unpacked, or have so many bytes then.
_MOST_COMPRESSION = 20
_UNPACKED_BYTES = 1 << 26
_LONGEST_NAME = 200  # bytes; file systems take 255
_PYTORCH = (".pt", ".pth", ".safetensors")


def require(name: str) -> None:
    """Raises Usage for a user's own model that cannot be one, with the function or file that is probably meant."""
    lost = missing(name)
    if lost:
        raise unusable(lost, name)


def unusable(why: str, name: str) -> options.Usage:
    """The error for a model that cannot be used, with a similar one where there is one, else with what makes it one."""
    file = name if name.endswith(".keras") else name.partition(":")[0]
    if os.path.isfile(file):
        try:
            regular_files.require_readable(file)
        except regular_files.Unreadable as error:
            return options.Usage(why, wrong=name, right=name, first=error.first)
    if _is_elsewhere(name):
        return _written_elsewhere(why, name)
    right = similar(name)
    if right:
        return options.Usage(why, wrong=name, right=right, similar="model")
    first, named_then = _mending(name)
    return options.Usage(why, wrong=name, right=named_then, first=first)


def failing(why: str, name: str) -> options.Usage:
    """The error for a model that is there and fails: its own error, and what mends it."""
    first, named_then = _mending(name)
    return options.Usage(why, wrong=name, right=named_then, first=first)


def _is_elsewhere(name: str) -> bool:
    """Whether a model is one of another library or of a web page, which cannot be explained as it is."""
    return bool(_ADDRESS.match(name)) or _other_ending(name).lower() in _PYTORCH or bool(_other_library(name))


def _other_library(name: str) -> str:
    """The library other than Keras that a module or a file is of; "" of any other."""
    module, _, _ = name.partition(":")
    if module.endswith(".py"):
        return other_libraries.library_imported(Path(module).expanduser())
    return other_libraries.library_name(module)


def _written_elsewhere(why: str, name: str) -> options.Usage:
    """The error for a model of another library or of a web page: a known model with a similar name, as an example, else what
    makes it one of Keras."""
    words = re.split(r"[:/.]", name)
    known = [misspelled(word, networks.names()) for word in reversed(words)]
    similar_ones = [model for model in known if model]
    if similar_ones and not name.partition(":")[0].endswith(".py"):
        message = f"{why}; {similar_ones[0]} is a known model in Keras"
        error = options.Usage(message, wrong=name, right=similar_ones[0])
        error.is_example = True
        return error
    first, named_then = _mending(name)
    return options.Usage(why, wrong=name, right=named_then, first=first)


def _mending(name: str) -> tuple[str, str]:
    """(what to do with a model that cannot be used; its name then)."""
    path = Path(name)
    if _ADDRESS.match(name) or _other_ending(name).lower() in _DATA:
        file = command_lines.unused("model.py")
        return f"write {file} with a function build that returns the model", f"{file}:build"
    if _other_library(name):
        module, _, function = name.partition(":")
        file = module if module.endswith(".py") else command_lines.unused("model.py")
        return f"write the model with Keras in {file}", f"{file}:{function or 'build'}"
    if path.suffix == ".keras":
        saved = _keras_file_to_save(name)
        return f"save the model with model.save({saved!r})", saved
    if path.suffix == ".ipynb":
        return f"put the function that returns the model into {path.stem}.py", f"{path.stem}.py:build"
    ending = _other_ending(name)
    if ending or os.path.isdir(path):
        saved = _keras_file_to_save(f"{str(path).removesuffix(ending)}.keras")
        whole = "the whole model" if ending == ".weights.h5" else "the model"
        whole = "the same model, written in Keras," if ending in _PYTORCH else whole
        return f"save {whole} with model.save({saved!r})", saved
    module, _, function = name.partition(":")
    file = _file_to_write(module)
    if not os.path.lexists(file) and _is_nowhere(module):
        function = function or "build"
        is_module = bool(module) and os.sep not in module and ":" in name and not module.endswith(".py")
        named = module if is_module else file
        return f"write {file} with a function {function} that returns the model", f"{named}:{function}"
    needed = _arguments_needed(module, function)
    if needed:
        default = "a default" if len(needed) == 1 else "defaults"
        return f"give {' and '.join(needed)} {default} in {module}", name
    return f"mend {module if module.endswith('.py') else 'the file'}", name


def _keras_file_to_save(name: str) -> str:
    """The name of a .keras file that can be saved: this one, else one in this folder that is not there yet."""
    path = Path(name)
    if not regular_files.unwritable(path):
        return name
    in_this_folder = "model.keras" if _is_too_long(path.name) else path.name
    return command_lines.unused(in_this_folder)


def _is_too_long(name: str) -> bool:
    """Whether no file can have this name, or the numbers that make it another one."""
    return len(os.fsencode(name)) > _LONGEST_NAME


def _file_to_write(module: str) -> str:
    """The file that a module which is not there would have: of a path whose folder cannot have one, a file in this folder."""
    if not module or _is_too_long(module):
        return "model.py"
    if module.endswith(".py") and os.path.isdir(module):
        return command_lines.unused(module)
    if os.sep not in module:
        return module if module.endswith(".py") else os.path.join(*module.split(".")) + ".py"
    path = Path(module)
    stem = "model" if not path.stem or _is_too_long(path.name) else path.stem
    folder = path.parent
    if os.path.isfile(path) and module.endswith(".py"):
        return module
    is_special = os.path.lexists(path) and not os.path.isdir(path)  # a device, or a file with another ending
    if is_special or not os.access(folder, os.W_OK) or not os.path.isdir(folder):
        folder = Path()
    return str(folder / f"{stem}.py")


def _is_nowhere(module: str) -> bool:
    """Whether no module, installed ones included, has the first part of this name. A folder without __init__.py is none."""
    first = module.partition(".")[0]
    if module.endswith(".py") or not first.isidentifier():
        return True
    spec = importlib.util.find_spec(first)
    return spec is None or spec.origin is None


def missing(name: str) -> str:
    """Why a user's own model cannot be one, as far as its files say; "" where they do not."""
    try:
        return _missing(name)
    except regular_files.Unreadable as error:
        return str(error)


def _missing(name: str) -> str:
    """Why a user's own model cannot be one, as `missing` says it. Raises: Unreadable for its file."""
    if name.endswith(".keras"):
        return _missing_in_keras_file(name)
    if _ADDRESS.match(name):
        return f"{name} is an address, and no model is downloaded"
    unreadable = other_format(name)
    if unreadable:
        return unreadable
    library = _other_library(name)
    module, _, function = name.partition(":")
    if library:
        return other_libraries.refusal(module, library)
    file = Path(module).expanduser()
    if regular_files.exists(file) and (module.endswith(".py") or not os.path.isdir(file)):
        if module.endswith(".py"):
            regular_files.require_source(file)
            return _missing_in_file(module, function)
        regular_files.require_readable(file)
    if not _FUNCTION.fullmatch(name):
        form = f"{name!r} is no file.py:function or package.module:function, and no .keras file as model.save() writes"
        if Path(module).suffix and not os.path.exists(module):
            return f"there is no file {module}; {form}"
        if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not os.path.exists(name):  # as models on the web are named
            return f"there is no file {name}, and no model is downloaded"
        return form
    if module.endswith(".py"):
        return f"there is no file {module}"
    return _missing_in_module(module, function)


def _other_ending(name: str) -> str:
    """The ending of a file of another program, as it was typed; "" of any other name."""
    for ending in _OTHER_FORMATS:
        if name.lower().endswith(ending):
            return name[-len(ending) :]
    return ""


def is_model_file(name: str) -> bool:
    """Whether a word ends as the files of models do, those that cannot be used among them."""
    return name.endswith(".keras") or (bool(_other_ending(name)) and not name.endswith(".ipynb"))


def other_format(name: str) -> str:
    """Why a file of another format, or a folder, is no model here; "" of what is neither.

    Raises: Unreadable where nobody can tell whether it is there.
    """
    if os.path.isdir(name):
        return f"{name} is a folder, and no file.py:function or file.keras"
    what = _OTHER_FORMATS.get(_other_ending(name).lower(), "")
    if not what:
        return ""
    if not regular_files.exists(name):
        return f"there is no file {name}, and it would be {what}"
    return f"{name} is {what}, and no file.py:function or file.keras"


def _missing_in_keras_file(path: str) -> str:
    """Why Keras cannot load a file; "" where it is of the form that model.save() writes."""
    if not regular_files.exists(path):
        return f"there is no file {path}"
    regular_files.require_readable(path)
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
    except OSError as error:
        return f"cannot read {path}: {regular_files.reason(path, error)}"
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return f"{path} is no Keras model: it is not the zip file that model.save() writes"
    if "config.json" not in [part.filename for part in parts]:
        return f"{path} is no Keras model: there is no config.json in it"
    return _unpacks_too_far(path, sum(part.file_size for part in parts))


def _unpacks_too_far(path: str, unpacked_bytes: int) -> str:
    """Why a .keras file that is far larger without its compression is not read; "" of any other. Keras compresses nothing."""
    packed_bytes = os.path.getsize(path)
    if unpacked_bytes <= max(_UNPACKED_BYTES, _MOST_COMPRESSION * packed_bytes):
        return ""
    sizes = f"{units.size(packed_bytes)} unpack to {units.size(unpacked_bytes)}"
    return f"{path} is no Keras model: its {sizes}, and model.save() compresses nothing"


def require_source(path: str) -> None:
    """Raises Usage for a Python file that is not there, cannot be read or does not parse."""
    if not regular_files.exists(path):
        similar_one = similar_path(path)
        first = "" if similar_one else f"write {path}"
        raise options.Usage(f"there is no file {path}", wrong=path, right=similar_one or path, first=first)
    try:
        regular_files.require_source(path)
        source_trees.parsed(Path(path).read_bytes())
    except regular_files.Unreadable as error:
        raise options.Usage(str(error), wrong=path, right=path, first=error.first or f"mend {path}") from error
    except SyntaxError as error:
        raise options.Usage(_no_python(path, error), wrong=path, right=path, first=f"mend {path}") from error


def _no_python(path: str, error: SyntaxError) -> str:
    """Why a file does not parse, with the line at fault."""
    return f"{path} is no Python that can be read: {error.msg}{_line_at_fault(error)}"


def _missing_in_file(path: str, function: str) -> str:
    try:
        tree = source_trees.parsed(Path(path).expanduser().read_bytes())
    except SyntaxError as error:
        return _no_python(path, error)
    if not function:
        return f"{path} is a file: name its function that returns the model, as {path}:build"
    if not function.isidentifier():
        return f"{function!r} is no name of a function in {path}"
    needed = _needed_by(tree, function)
    if needed:
        return f"{path}:{function} is called without arguments, and needs {', '.join(needed)}"
    return "" if _may_bind(tree, function) else f"{path} has no function {function}"


def _line_at_fault(error: SyntaxError) -> str:
    """The number and the text of the line that a SyntaxError names, after a comma; "" where it names none."""
    if not error.lineno:
        return ""
    text = (error.text or "").strip()
    return f", line {error.lineno}: {text}" if text else f", line {error.lineno}"


def _missing_in_module(module: str, function: str) -> str:
    """Why a module has no such function, as far as its source says; "" where it may have it. No module is imported."""
    parent: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = _spec(part, parent)
        if spec is None:
            if parent and parent.origin and _may_bind(_tree(parent)):
                return ""
            return f"there is no module {name} (looked in {os.getcwd()} and the installed packages)"
        parent = spec
    if parent is not None and parent.origin is None:
        return f"{module} is a folder without __init__.py, and no file.py:function"
    return "" if _may_bind(_tree(parent), function) else f"{module} has no function {function}"


def _spec(part: str, parent: ModuleSpec | None) -> ModuleSpec | None:
    """Where a part of a dotted name lies below its parent; of the first part, in the folder that the command was typed in, which
    comes first in the worker too, else among the installed packages."""
    if parent:
        return PathFinder.find_spec(part, parent.submodule_search_locations or [])
    return PathFinder.find_spec(part, [os.getcwd()]) or importlib.util.find_spec(part)


def similar(name: str) -> str:
    """A model that is there and may be meant: a file or a function with a similar name, else the function that builds a model
    in the file that is named, else in the only file of this folder that has one. "" without one.

    A file of a model is like no other file, but for a .keras file that is not there and one with a similar name.
    """
    if _may_be_hidden(name.partition(":")[0]):
        return ""
    if name.endswith(".keras"):
        return _similar_keras_file(name)
    if other_format(name):
        saved = f"{name.removesuffix(_other_ending(name))}.keras"
        return saved if os.path.isfile(saved) else ""
    module, _, function = name.partition(":")
    path = similar_path(module)
    if not path.endswith(".py"):
        stem = Path(module).name.removesuffix(".py").partition(".")[0]
        path = similar_path(f"{stem}.py")
        function = function or name.rpartition(".")[2]
    if path.endswith(".py"):
        return _in_file(path, function, name)
    if not {":", "."}.intersection(name):  # a word, perhaps of a known model
        return ""
    models = [_in_file(str(file), "", name) for file in sorted(Path().glob("*.py"))]
    named = [model for model in models if model]
    return named[0] if len(named) == 1 else ""


def _may_be_hidden(path: str) -> bool:
    """Whether nobody can tell if a path is there, as of one in a folder that may not be entered."""
    try:
        regular_files.exists(path)
    except regular_files.Unreadable:
        return True
    return False


def _similar_keras_file(name: str) -> str:
    """The .keras file with a similar name, its ending apart, in place of one that is not there; "" without one."""
    path = similar_path(name)
    if os.path.lexists(name) or not path.endswith(".keras") or not os.path.isfile(path):
        return ""
    return path if closest(Path(name).stem, [Path(path).stem]) else ""


def _in_file(path: str, function: str, wrong: str) -> str:
    """`path:function` of the function there whose name is most similar, else of the first that builds a model, else
    `path:variable` of a variable that holds one."""
    tree = _parsed(path)
    if tree is None:
        return ""
    callable_ones = [node for node in source_trees.functions(tree) if not source_trees.required_arguments(node)]
    others = [node for node in callable_ones if f"{path}:{node.name}" != wrong]
    near = closest(function, [node.name for node in others]) if function else ""
    builders = [node.name for node in others if source_trees.builds_model(node)]
    variables = [variable for variable in source_trees.model_variables(tree) if f"{path}:{variable}" != wrong]
    candidates = [near] if near else [*builders, *variables]
    chosen = candidates[0] if candidates else ""
    return f"{path}:{chosen}" if chosen else ""


def _needed_by(tree: ast.Module, function: str) -> list[str]:
    """The arguments that the function of this name cannot be called without; [] without such a function."""
    for node in source_trees.functions(tree):
        if node.name == function:
            return source_trees.required_arguments(node)
    return []


def _arguments_needed(module: str, function: str) -> list[str]:
    """The arguments that a function of a file cannot be called without; [] of what is no such file."""
    tree = _parsed(os.path.expanduser(module)) if module.endswith(".py") else None
    return _needed_by(tree, function) if tree is not None else []


def _parsed(path: str) -> ast.Module | None:
    """A source file's tree; None of what does not parse, and of a pipe."""
    try:
        regular_files.require_source(path)
        with open(path, "rb") as file:
            return source_trees.parsed(file.read())
    except (regular_files.Unreadable, OSError, SyntaxError):
        return None


def _tree(spec: ModuleSpec | None) -> ast.Module | None:
    if spec is None or spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
        return None
    return _parsed(spec.origin)


def _may_bind(tree: ast.Module | None, name: str = "") -> bool:
    """Whether a module's source has the name, or anything that could create it. True if there is no source or it does not
    parse: the worker reports that better."""
    return tree is None or not {name, *_MAKES_NAMES}.isdisjoint(source_trees.names_in(tree))
