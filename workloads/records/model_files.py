"""Checks a user's own model, as `--model` names it, by looking at its files: nothing of them is imported or run."""

import ast
import dataclasses
import importlib.util
import os
import re
import zipfile
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from analysis import units
from kernels import networks
from workloads import options
from workloads.corrections.nearest import NEARLY_THE_SAME, nearest, nearest_path
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remedy:
    """What makes a model usable that cannot be used as it is."""

    #: What the user does first, as an order: `save the model with model.save('a.keras')`.
    first: str
    #: What --model gets afterwards.
    name: str

    def error(self, message: str, wrong: str) -> options.Usage:
        """The error for the model named `wrong`, which proposes this remedy."""
        return options.Usage(message, wrong=wrong, right=self.name, first=self.first)


def require(name: str) -> None:
    """Raises Usage if a user's own model of this name (`file.py:function`, `package.module:function`, `file.keras`) cannot be
    used as far as its files tell; the error proposes the function or file that is probably meant."""
    fault = missing(name)
    if fault:
        raise unusable(fault, name)


def unusable(fault: str, name: str) -> options.Usage:
    """The error for a model that cannot be used because of a fault (in words): it proposes a model with a similar name, else what
    the user can do to make this one usable."""
    file = name if name.endswith(".keras") else name.partition(":")[0]
    if os.path.isfile(file):
        try:
            regular_files.require_readable(file)
        except regular_files.Unreadable as error:
            return options.Usage(fault, wrong=name, right=name, first=error.first)
    if _is_elsewhere(name):
        return _written_elsewhere(fault, name)
    right = similar(name)
    if right:
        return options.Usage(fault, wrong=name, right=right, similar="model")
    return _remedy(name).error(fault, wrong=name)


def failing(fault: str, name: str) -> options.Usage:
    """The error for a model that exists and fails with this fault (its error, in words): it proposes what mends it."""
    return _remedy(name).error(fault, wrong=name)


def _is_elsewhere(name: str) -> bool:
    """Whether the name of a model is the address of a web page, or of a model that is not written with Keras."""
    return bool(_ADDRESS.match(name)) or _other_ending(name).lower() in _PYTORCH or bool(_other_library(name))


def _other_library(name: str) -> str:
    """The library, such as PyTorch, with which the model named `module:function` or `file.py:function` is written; "" for Keras
    and where the name and the imports of the file do not tell."""
    module, _, _ = name.partition(":")
    if module.endswith(".py"):
        return other_libraries.library_imported(Path(module).expanduser())
    return other_libraries.library_name(module)


def _written_elsewhere(fault: str, name: str) -> options.Usage:
    """The error for a model of another library or of a web page: it proposes a known model with a similar name as an example,
    else writing this one with Keras."""
    similar_models: list[str] = []
    for word in reversed(re.split(r"[:/.]", name)):  # the last word of a name says most: timm.resnet50
        model = nearest(word, networks.names(), NEARLY_THE_SAME)
        if model:
            similar_models.append(model)
    if similar_models and not name.partition(":")[0].endswith(".py"):
        example = similar_models[0]
        error = options.Usage(f"{fault}; {example} is a known model in Keras", wrong=name, right=example)
        error.is_example = True
        return error
    return _remedy(name).error(fault, wrong=name)


def _remedy(name: str) -> Remedy:
    """What the user can do to get a usable model in place of the one of this name, by the kind of thing that it names."""
    path = Path(name)
    ending = _other_ending(name)
    if _ADDRESS.match(name) or ending.lower() in _DATA:
        file = command_lines.unused("model.py")
        return Remedy(first=f"write {file} with a function build that returns the model", name=f"{file}:build")
    module, _, function = name.partition(":")
    if _other_library(name):
        file = module if module.endswith(".py") else command_lines.unused("model.py")
        return Remedy(first=f"write the model with Keras in {file}", name=f"{file}:{function or 'build'}")
    if path.suffix == ".keras":
        saved = _keras_file_to_save(name)
        return Remedy(first=f"save the model with model.save({saved!r})", name=saved)
    if path.suffix == ".ipynb":
        first = f"put the function that returns the model into {path.stem}.py"
        return Remedy(first=first, name=f"{path.stem}.py:build")
    if ending or os.path.isdir(path):
        return _saved_by_keras(path, ending)
    return _remedy_for_function(name)


def _saved_by_keras(path: Path, ending: str) -> Remedy:
    """The remedy for a file of another program with this ending, or for a folder ("" for its ending): Keras saves the model."""
    saved = _keras_file_to_save(f"{str(path).removesuffix(ending)}.keras")
    if ending in _PYTORCH:
        model = "the same model, written in Keras,"
    elif ending == ".weights.h5":
        model = "the whole model"
    else:
        model = "the model"
    return Remedy(first=f"save {model} with model.save({saved!r})", name=saved)


def _remedy_for_function(name: str) -> Remedy:
    """The remedy for `module:function` or `file.py:function`: writing what does not exist, giving its arguments defaults, or
    mending it."""
    module, _, function = name.partition(":")
    file = _file_to_write(module)
    if not os.path.lexists(file) and _is_nowhere(module):
        function = function or "build"
        is_module = bool(module) and os.sep not in module and ":" in name and not module.endswith(".py")
        first = f"write {file} with a function {function} that returns the model"
        return Remedy(first=first, name=f"{module if is_module else file}:{function}")
    needed = _arguments_needed(module, function)
    if needed:
        default = "a default" if len(needed) == 1 else "defaults"
        return Remedy(first=f"give {' and '.join(needed)} {default} in {module}", name=name)
    return Remedy(first=f"mend {module if module.endswith('.py') else 'the file'}", name=name)


def _keras_file_to_save(name: str) -> str:
    """The name under which Keras can save a model: this .keras file if it can be written, else a new one in this folder."""
    path = Path(name)
    if not regular_files.unwritable(path):
        return name
    in_this_folder = "model.keras" if _is_too_long(path.name) else path.name
    return command_lines.unused(in_this_folder)


def _is_too_long(name: str) -> bool:
    """Whether a file name is too long, room for a number behind it (`-2`) included."""
    return len(os.fsencode(name)) > _LONGEST_NAME


def _file_to_write(module: str) -> str:
    """The Python file to write so that this module (a dotted name or a path) exists; in this folder where the path's own folder
    cannot have it."""
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
    """Whether a dotted name is no module here: nothing installed or in this folder has its first part. A folder without
    __init__.py is no module."""
    top_level = module.partition(".")[0]
    if module.endswith(".py") or not top_level.isidentifier():
        return True
    spec = importlib.util.find_spec(top_level)
    return spec is None or spec.origin is None


def missing(name: str) -> str:
    """Why a user's own model of this name cannot be used, in words, by a look at its files; "" where they show no fault."""
    try:
        return _missing(name)
    except regular_files.Unreadable as error:
        return str(error)


def _missing(name: str) -> str:
    """Why a user's own model cannot be used, in words; "" where its files show no fault.

    Raises: Unreadable for a file of it that cannot be read.
    """
    if name.endswith(".keras"):
        return _missing_in_keras_file(name)
    if _ADDRESS.match(name):
        return f"{name} is an address, and no model is downloaded"
    format_fault = other_format(name)
    if format_fault:
        return format_fault
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
    """The ending that says that a file is of another program (a key of _OTHER_FORMATS, in the letters that were typed), such as
    `.pt`; "" for any other name."""
    for ending in _OTHER_FORMATS:
        if name.lower().endswith(ending):
            return name[-len(ending) :]
    return ""


def is_model_file(name: str) -> bool:
    """Whether a word has the ending of a model's file: `.keras`, or that of another program's, which cannot be used here."""
    return name.endswith(".keras") or (bool(_other_ending(name)) and not name.endswith(".ipynb"))


def other_format(name: str) -> str:
    """Why a folder, or a file that has the ending of another program, is no model here, in words; "" for any other name.

    Raises: Unreadable where nobody can tell whether the file exists.
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
    """Why Keras cannot load a .keras file, in words; "" where it looks as model.save() writes it: a zip with a config.json."""
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
    """Why a .keras file is not unpacked, in words: it would be far larger then, though Keras compresses nothing; "" where it
    would not."""
    packed_bytes = os.path.getsize(path)
    if unpacked_bytes <= max(_UNPACKED_BYTES, _MOST_COMPRESSION * packed_bytes):
        return ""
    sizes = f"{units.size(packed_bytes)} unpack to {units.size(unpacked_bytes)}"
    return f"{path} is no Keras model: its {sizes}, and model.save() compresses nothing"


def require_source(path: str) -> None:
    """Raises Usage for a Python file that does not exist, cannot be read or does not parse."""
    if not regular_files.exists(path):
        existing = nearest_path(path)
        first = "" if existing else f"write {path}"
        raise options.Usage(f"there is no file {path}", wrong=path, right=existing or path, first=first)
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
    """Why a Python file has no function of this name that can be called without arguments, in words; "" where it may have one.

    function: "" where none was named.
    """
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
    """Why a module (a dotted name) has no function of this name, in words; "" where its source has the name, or may create it.

    Nothing is imported: the parts of the dotted name are looked for one below the other.
    """
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
    """The module of this name below its parent package; None if there is none.

    parent: None for the first part of a dotted name. That is looked for in the current folder, which comes first when the model
    is imported too, then among the installed packages.
    """
    if parent:
        return PathFinder.find_spec(part, parent.submodule_search_locations or [])
    return PathFinder.find_spec(part, [os.getcwd()]) or importlib.util.find_spec(part)


def similar(name: str) -> str:
    """An existing model, written as --model takes it, that may be meant by a wrong name; "" without one.

    It is a function with a similar name; else the function that builds a model in the file that was named; else the one in the
    only file of this folder that has one. For a .keras file that does not exist it is one with a similar name.
    """
    if _may_be_hidden(name.partition(":")[0]):
        return ""
    if name.endswith(".keras"):
        return _similar_keras_file(name)
    if other_format(name):
        saved = f"{name.removesuffix(_other_ending(name))}.keras"
        return saved if os.path.isfile(saved) else ""
    module, _, function = name.partition(":")
    path = nearest_path(module)
    if not path.endswith(".py"):
        stem = Path(module).name.removesuffix(".py").partition(".")[0]
        path = nearest_path(f"{stem}.py")
        function = function or name.rpartition(".")[2]
    if path.endswith(".py"):
        return _in_file(path, function, name)
    if not {":", "."}.intersection(name):  # a word, perhaps of a known model
        return ""
    models: list[str] = []
    for file in sorted(Path().glob("*.py")):
        model = _in_file(str(file), "", name)
        if model:
            models.append(model)
    return models[0] if len(models) == 1 else ""


def _may_be_hidden(path: str) -> bool:
    """Whether this user cannot know if anything is at a path, because a folder on the way may not be entered."""
    try:
        regular_files.exists(path)
    except regular_files.Unreadable:
        return True
    return False


def _similar_keras_file(name: str) -> str:
    """An existing .keras file with a name similar to that of one that does not exist; "" without one. The endings are not
    compared: all are alike in them."""
    path = nearest_path(name)
    if os.path.lexists(name) or not path.endswith(".keras") or not os.path.isfile(path):
        return ""
    return path if nearest(Path(name).stem, [Path(path).stem]) else ""


def _in_file(path: str, function: str, wrong: str) -> str:
    """A model in a Python file, as `path:name`; "" without one.

    It is the function whose name is most like `function`; else the first function that builds a model; else a variable that
    holds one. Functions with required arguments are left out, and so is `wrong`, the name that was typed and does not work.
    """
    tree = _parsed(path)
    if tree is None:
        return ""
    functions: list[ast.FunctionDef] = []
    for node in source_trees.functions(tree):
        if not source_trees.required_arguments(node) and f"{path}:{node.name}" != wrong:
            functions.append(node)
    similar_name = nearest(function, [node.name for node in functions]) if function else ""
    if similar_name:
        return f"{path}:{similar_name}"
    for node in functions:
        if source_trees.builds_model(node):
            return f"{path}:{node.name}"
    for variable in source_trees.model_variables(tree):
        if f"{path}:{variable}" != wrong:
            return f"{path}:{variable}"
    return ""


def _needed_by(tree: ast.Module, function: str) -> list[str]:
    """The arguments without a default of the function with this name at the top level of a module; [] without such a function."""
    for node in source_trees.functions(tree):
        if node.name == function:
            return source_trees.required_arguments(node)
    return []


def _arguments_needed(module: str, function: str) -> list[str]:
    """The arguments without a default of a function in a Python file; [] where `module` is no file that can be read, or has no
    such function."""
    tree = _parsed(os.path.expanduser(module)) if module.endswith(".py") else None
    return _needed_by(tree, function) if tree is not None else []


def _parsed(path: str) -> ast.Module | None:
    """The syntax tree of a Python file; None if it cannot be read, does not parse, or is no regular file."""
    try:
        regular_files.require_source(path)
        with open(path, "rb") as file:
            return source_trees.parsed(file.read())
    except (regular_files.Unreadable, OSError, SyntaxError):
        return None


def _tree(spec: ModuleSpec | None) -> ast.Module | None:
    """The syntax tree of a module that was looked up; None if it has no Python source that can be read."""
    if spec is None or spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
        return None
    return _parsed(spec.origin)


def _may_bind(tree: ast.Module | None, name: str = "") -> bool:
    """Whether a module may have this name: its source has the name, or has something that can create names, such as `setattr` or
    `import *`.

    tree: None where there is no source or it does not parse; then True, as the worker that imports the module reports it better.
    name: "" to ask only whether the module can create names.
    """
    if tree is None:
        return True
    return not {name, *_MAKES_NAMES}.isdisjoint(source_trees.names_in(tree))
