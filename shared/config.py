"""Settings: defaults, one TOML file, environment variables and flags become one frozen value.

A schema is a frozen dataclass whose fields are sections, and a section is a frozen dataclass too: the very
``…Config`` a module takes. Whoever comes later wins::

    default  <  file  <  environment LETHE_<SECTION>_<KEY>  <  flag

Nothing here knows any section by name. Only a command line reads files and the environment; modules are
handed their part.
"""

import dataclasses
import difflib
import functools
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from shared.errors import ConfigError

T = TypeVar("T")

ENVIRONMENT_PREFIX = "LETHE_"


@dataclass(frozen=True, slots=True)
class Flag:
    """A setting given on the command line.

    Attributes:
        name: As the user typed it, for example ``--tier``.
        value: What they gave; None means the flag was left out.
    """

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """Settings and where each one came from.

    Attributes:
        values: The settings, checked.
        origins: By ``section.key``: ``default``, ``file PATH``, ``environment LETHE_X`` or ``flag --x``.
    """

    values: T
    origins: Mapping[str, str]

    def effective(self) -> dict[str, dict[str, Any]]:
        """Each setting as ``{section.key: {value, origin}}``, ready for JSON."""
        return {
            key: {"value": _plain(_lookup(self.values, key)), "origin": origin}
            for key, origin in self.origins.items()
        }


@dataclass(frozen=True, slots=True)
class _Given:
    """One value as it came in, before it was checked."""

    value: Any
    origin: str
    is_text: bool = False


def load_settings(
    schema: type[T],
    *,
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Flag],
    not_settings: Collection[str] = (),
) -> Loaded[T]:
    """Read settings from all places and check them.

    Args:
        schema: Frozen dataclass of sections.
        file: TOML file; None for none. It must exist.
        environ: For example ``os.environ``; only names that begin with ``LETHE_`` are looked at.
        flags: By ``section.key``.
        not_settings: Variables that begin with ``LETHE_`` and mean something else.

    Raises:
        ConfigError: If a key is unknown or a value will not do; one line with key, value and origin.
    """
    keys = _keys_of(schema)
    given: dict[str, _Given] = {}
    if file is not None:
        given |= _from_file(file, keys)
    given |= _from_environment(environ, keys, not_settings)
    given |= {
        key: _Given(flag.value, f"flag {flag.name}") for key, flag in flags.items() if flag.value is not None
    }
    origins = {key: given[key].origin if key in given else "default" for key in keys}
    checked = {key: _check(key, keys[key], value) for key, value in given.items()}
    sections = {
        name: _build_section(name, section, checked, given) for name, section in _sections(schema).items()
    }
    return Loaded(schema(**sections), origins)


def _sections(schema: type[Any]) -> dict[str, type[Any]]:
    hints = get_type_hints(schema)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema)}


def _keys_of(schema: type[Any]) -> dict[str, Any]:
    """Type of every ``section.key``, in the order of the schema."""
    keys: dict[str, Any] = {}
    for name, section in _sections(schema).items():
        hints = get_type_hints(section, include_extras=True)
        keys |= {f"{name}.{f.name}": hints[f.name] for f in dataclasses.fields(section) if f.init}
    return keys


def _from_file(file: Path, keys: Mapping[str, Any]) -> dict[str, _Given]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as err:
        raise ConfigError(f"settings file {file} cannot be read: {err.strerror}") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(f"settings file {file} is not valid TOML: {err}") from err
    given = {}
    sections = {key.split(".")[0] for key in keys}
    for name, section in table.items():
        if name not in sections:
            raise ConfigError(f"{file}: unknown section [{name}]{_nearest(name, sections)}")
        if not isinstance(section, dict):
            raise ConfigError(f"{file}: {name} is a section: write [{name}] and its keys below it")
        for key, value in section.items():
            full = f"{name}.{key}"
            if full not in keys:
                raise ConfigError(f"{file}: unknown key {full}{_nearest(full, keys)}")
            given[full] = _Given(value, f"file {file}")
    return given


def _from_environment(
    environ: Mapping[str, str], keys: Mapping[str, Any], not_settings: Collection[str]
) -> dict[str, _Given]:
    names = {environment_name(key): key for key in keys}
    given = {}
    for name, value in environ.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in not_settings:
            continue
        if name not in names:
            raise ConfigError(
                f"unknown environment variable {name}{_near_name(name, [*names, *not_settings])}"
            )
        given[names[name]] = _Given(value, f"environment {name}", is_text=True)
    return given


def environment_name(key: str) -> str:
    """The variable that sets ``section.key``."""
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def _nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean …?``, or the whole list where nothing is near."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"


def _near_name(name: str, known: Iterable[str]) -> str:
    """The same for variables, whose common beginning must not count as likeness."""
    endings = [other.removeprefix(ENVIRONMENT_PREFIX) for other in known]
    near = difflib.get_close_matches(name.removeprefix(ENVIRONMENT_PREFIX), endings, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {ENVIRONMENT_PREFIX}{near[0]}?"
    return f"; settings are called {ENVIRONMENT_PREFIX}<SECTION>_<KEY>"


def _check(key: str, kind: Any, given: _Given) -> Any:
    """The value in its proper type."""
    adapter = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
    try:
        if given.is_text:
            return adapter.validate_python(_split(kind, given.value))
        # By way of JSON a TOML array may become a tuple, while "2" still does not become 2.
        return adapter.validate_json(json.dumps(given.value, default=str), strict=True)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        where = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
        wanted = first["msg"].replace("Input should be", "must be")
        raise _refusal(f"{key}{where}", given, wanted) from err


def _split(kind: Any, text: str) -> Any:
    """Lists are written ``a,b,c`` in a variable."""
    if get_origin(kind) in (tuple, list, frozenset):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _build_section(
    name: str, section: type[Any], checked: Mapping[str, Any], given: Mapping[str, _Given]
) -> Any:
    own = {
        field.name: checked[f"{name}.{field.name}"]
        for field in dataclasses.fields(section)
        if f"{name}.{field.name}" in checked
    }
    try:
        return section(**own)
    except (ValueError, ConfigError) as err:
        # A section names the field it refuses; where it does not, any of the given ones may be at fault.
        at_fault = next((key for key in own if key in str(err)), next(iter(own)))
        key = f"{name}.{at_fault}"
        raise _refusal(key, given[key], str(err)) from err


def _refusal(key: str, given: _Given, wanted: str) -> ConfigError:
    value = json.dumps(_plain(given.value), ensure_ascii=False)
    return ConfigError(f"{key} = {value} ({given.origin}): {wanted}")


def _lookup(values: Any, key: str) -> Any:
    return functools.reduce(getattr, key.split("."), values)


def _plain(value: Any) -> Any:
    """The value as JSON knows it."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return str(value)
