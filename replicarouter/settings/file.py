"""The YAML file as plain values, with the line on which each stands: the library's own YAML source
knows no lines, takes a key given twice, and passes over a file that is missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from replicarouter.errors import SettingsError
from replicarouter.settings.errors import Location, dotted

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a settings file says. A key with nothing after it counts as not set."""

    values: dict[str, object]
    lines: Mapping[Location, int]


def read_settings_file(path: Path) -> FileContent:
    """Read a settings file; raises SettingsError naming the file and, where it can, the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    return _parse(text, path)


def _parse(text: str, path: Path) -> FileContent:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None or root.tag == _NULL:
            return FileContent({}, {})
        survey = _Survey()
        survey.visit(root, ())
        if not isinstance(root, yaml.MappingNode):
            survey.problems.append(f"line {_line(root)}: give settings as `key: value`")
        if survey.problems:
            raise SettingsError("\n".join(f"{path} {problem}" for problem in survey.problems))
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError(f"{path}{where}: not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SettingsError(f"{path} line {line}: not YAML: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: not YAML: {error}") from None
    return FileContent(_without_nulls(values), survey.lines)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Survey:
    """Where everything stands in a parsed file, and what is wrong with its keys."""

    def __init__(self) -> None:
        self.lines: dict[Location, int] = {}
        self.problems: list[str] = []
        self._seen: set[int] = set()
        self._open: set[int] = set()

    def visit(self, node: yaml.Node, location: Location) -> None:
        """Note a node and all below it; what an alias repeats is noted once."""
        if id(node) in self._open:
            self.problems.append(f"line {_line(node)}: {dotted(location)} contains itself")
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        self._open.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[*location, index] = _line(item)
                self.visit(item, (*location, index))
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._visit_pair(key, value, location)
        self._open.remove(id(node))

    def _visit_pair(self, key: yaml.Node, value: yaml.Node, location: Location) -> None:
        if key.tag == _MERGE:
            return
        if key.tag != _TEXT:
            self.problems.append(f"line {_line(key)}: a key must be text; put it in quotes")
            return
        place = (*location, str(key.value))
        if place in self.lines:
            first = self.lines[place]
            problem = f"line {_line(key)}: {dotted(place)} is given twice, first on line {first}"
            self.problems.append(problem)
        self.lines[place] = _line(key)
        self.visit(value, place)


def _without_nulls(values: dict[str, object]) -> dict[str, object]:
    return {key: _pruned(value) for key, value in values.items() if value is not None}


def _pruned(value: object) -> object:
    if isinstance(value, dict):
        return _without_nulls(value)
    return [_pruned(item) for item in value] if isinstance(value, list) else value
