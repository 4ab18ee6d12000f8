"""Keep files and functions small and imports pointing left, so that the layers stay true.

Reads the package's sources with ``ast`` and never imports them: it says the same on every machine,
with or without torch.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "pp_precompile"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80

LAYERS = ("contract", "graph", "plot", "store", "stage", "runtime", "pipelining", "titan", "cli")
# The model registries are thin configuration over the torchtitan glue.
ALIASES = {"models": "titan"}
# Entry points and the public face may import from anywhere.
TOP_LEVEL = ("__init__", "__main__", "train")
# What any layer may take from the package itself: it holds no code.
PACKAGE_NAMES = ("__version__",)

TORCH_FREE = ("contract", "graph", "plot", "store")
# torchtitan and torchdata import torch: reaching it through them is reaching it.
TORCH_ROOTS = ("torch", "torchtitan", "torchdata", "functorch", "torchvision", "torchao")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Problem:
    """One broken rule at one place."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Source:
    """One module of the package: its place in the tree and its parsed text."""

    path: str
    parts: tuple[str, ...]
    """The module's dotted name below the package, so ``("stage", "trace")``."""
    is_package: bool
    lines: int
    tree: ast.Module

    @property
    def layer(self) -> str | None:
        """The layer this module belongs to; None for modules at the top."""
        return _layer_of(self.parts[0]) if len(self.parts) > 1 or self.is_package else None


def _layer_of(name: str) -> str:
    return ALIASES.get(name, name)


def read_sources(root: Path) -> Iterator[Source]:
    """Yield every module of the package below ``root``, in a fixed order."""
    for file in sorted((root / PACKAGE).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        parts = file.relative_to(root / PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__" and len(parts) > 1
        yield Source(
            path=file.relative_to(root).as_posix(),
            parts=parts[:-1] if is_package else parts,
            is_package=is_package,
            lines=len(text.splitlines()),
            tree=ast.parse(text, filename=str(file)),
        )


def check_file_size(source: Source) -> Iterator[Problem]:
    """A file that needs scrolling for minutes holds more than one idea."""
    if source.lines > MAX_FILE_LINES:
        yield Problem(source.path, 1, f"{source.lines} lines, at most {MAX_FILE_LINES} are allowed")


def check_function_size(source: Source) -> Iterator[Problem]:
    """Decorators and docstring count: they are read together with the body."""
    for node in ast.walk(source.tree):
        if not isinstance(node, FunctionNode):
            continue
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        length = (node.end_lineno or first) - first + 1
        if length > MAX_FUNCTION_LINES:
            text = f"{node.name} has {length} lines, at most {MAX_FUNCTION_LINES} are allowed"
            yield Problem(source.path, first, text)


def check_place(source: Source) -> Iterator[Problem]:
    """A folder or module outside the table would escape the layer rule."""
    if source.layer is None:
        if source.parts[0] not in TOP_LEVEL:
            text = f"{source.parts[0]} belongs to no layer; only {_listed(TOP_LEVEL)} stand on top"
            yield Problem(source.path, 1, text)
    elif source.layer not in LAYERS:
        text = f"folder {source.parts[0]} is no layer; the layers are {_listed(LAYERS)}"
        yield Problem(source.path, 1, text)


def check_layers(source: Source) -> Iterator[Problem]:
    """Imports inside functions and under ``TYPE_CHECKING`` count: they too tie the layers."""
    if source.layer is None or source.layer not in LAYERS:
        return
    here = LAYERS.index(source.layer)
    for line, module in imports(source):
        parts = module.split(".")
        if parts[0] != PACKAGE or len(parts) == 1 or parts[1] in PACKAGE_NAMES:
            continue
        target = _layer_of(parts[1])
        if target not in LAYERS:
            text = f"{source.layer} imports {module}, which stands above every layer"
            yield Problem(source.path, line, text)
        elif LAYERS.index(target) > here:
            text = f"{source.layer} imports {module}: {target} is to its right"
            yield Problem(source.path, line, text)


def check_torch_free(source: Source) -> Iterator[Problem]:
    """The left layers must run where torch cannot: in tools, in CI, on a login node."""
    if source.layer not in TORCH_FREE:
        return
    for line, module in imports(source):
        if module.split(".")[0] in TORCH_ROOTS:
            yield Problem(source.path, line, f"{source.layer} imports {module} and must not")


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) for everything a module imports, wherever it does so.

    ``from a import b`` yields ``a.b``: b may be a module, and if it is a name the prefix decides.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call):
            name = _dynamic(node)
            if name is not None:
                yield node.lineno, name


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    up = node.level - 1 if source.is_package else node.level
    parent = (PACKAGE, *source.parts)[: len(source.parts) + 1 - up]
    return ".".join([*parent, *([node.module] if node.module else [])])


def _dynamic(node: ast.Call) -> str | None:
    """The module that ``import_module("x")`` or ``__import__("x")`` names, if it is written out."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else None
    called = node.func.id if isinstance(node.func, ast.Name) else called
    if called not in ("import_module", "__import__") or not node.args:
        return None
    first = node.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


CHECKS = (check_place, check_file_size, check_function_size, check_layers, check_torch_free)


def check(root: Path) -> list[Problem]:
    """Return every broken rule below ``root``, ordered by place."""
    problems = [
        problem for source in read_sources(root) for rule in CHECKS for problem in rule(source)
    ]
    return sorted(problems, key=lambda problem: (problem.path, problem.line, problem.text))


def main(argv: list[str]) -> int:
    """Check the tree given as the only argument, or the one this file lives in."""
    root = Path(argv[0]) if argv else Path(__file__).resolve().parent.parent
    if not (root / PACKAGE).is_dir():
        print(f"{root} holds no {PACKAGE} folder", file=sys.stderr)
        return 2
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
