"""Options from a TOML file: `--config FILE`."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "text"}
_NONE = "none"  # None in the file: TOML has no null


@dataclass(frozen=True)
class ConfigFile:
    """The part of a configuration file that the command line has no options for.

    Attributes:
        path: the file, for messages.
        values: tables, and values of fields without an option, by key.
    """

    path: Path
    values: dict[str, Any]


def config_option(target: str) -> Any:
    """Declare the option `--config` of a command.

    Keys of the file are the options of the command, with underscores, and the fields of its configuration dataclass;
    nested dataclasses are tables. Values in the file replace the defaults of options, so that the command line takes
    precedence.

    Args:
        target: the dataclass as "package.module:Name"; it is imported only if there is a file.

    Returns:
        The `typer.Option` of a parameter of type `ConfigFile | None`.
    """

    def read(ctx: typer.Context, path: Path | None) -> ConfigFile | None:
        if path is None or ctx.resilient_parsing:
            return None
        module, _, name = target.partition(":")
        types = field_types(getattr(import_module(module), name))
        options = _option_types(ctx)
        values = _read_toml(path)
        _check_keys(values, [*options, *(field for field in types if field not in options)], path, "")
        tables = {key for key, value in values.items() if key not in options or isinstance(value, dict)} & set(types)
        defaults = {key: _option_value(values[key], options[key], path, key) for key in values if key not in tables}
        ctx.default_map = {**(ctx.default_map or {}), **defaults}
        return ConfigFile(path, {key: value for key, value in values.items() if key in tables})

    return typer.Option(
        "--config",
        metavar="FILE",
        parser=Path,
        callback=read,
        is_eager=True,  # before the options whose defaults it sets
        help="TOML file with options; those on the command line take precedence.",
    )


def config_values(config: ConfigFile | None, types: Mapping[str, Any], **bases: Any) -> dict[str, Any]:
    """Return the values of a configuration file, converted to the types of their fields.

    Args:
        config: the file, if there is one.
        types: type of each field by name, see `field_types`; a mapping instead of a type describes a nested dict.
        **bases: defaults of nested dataclasses by the name of the field; a table of the file replaces only the values
            that it contains.

    Returns:
        Keyword arguments for the dataclass: the values of the file, and the bases that it does not change.

    Raises:
        ValueError: a key is unknown, or a value has the wrong type or is out of range; the message names the key, such
            as "training.epochs".
    """
    if config is None:
        return bases
    values = {
        key: _convert(value, types[key], bases.get(key), config.path, key) for key, value in config.values.items()
    }
    return {**bases, **values}


def field_types(cls: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass by name, except for fields that are functions."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.init]
    return {name: hints[name] for name in names if not any(get_origin(m) is Callable for m in _members(hints[name]))}


def _option_types(ctx: typer.Context) -> dict[str, Any]:
    """Return the types of the arguments and options of a command by parameter name."""
    command: Any = ctx.command
    hints = get_type_hints(inspect.unwrap(command.callback))
    names = [parameter.name for parameter in command.params]
    return {name: hints[name] for name in names if name in hints and ConfigFile not in _members(hints[name])}


def _option_value(value: Any, hint: Any, path: Path, key: str) -> Any:
    """Check the value of an option and return it for conversion by the command line parser.

    A list becomes "a,b,c" for an option that is a text, and a text becomes a list for an option that is repeated.
    """
    if hint is str and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, str) and list[str] in _members(hint):
        return [value]
    _convert(value, hint, None, path, key)
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; expected a TOML file") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise ValueError(f"cannot read {path}: {error}; expected TOML") from error


def _check_keys(values: Mapping[str, Any], known: Sequence[str], path: Path, prefix: str) -> None:
    for key in values:
        if key not in known:
            raise ValueError(f"{path}: unknown key {prefix}{key}; expected one of {', '.join(known)}")


def _convert(value: Any, hint: Any, base: Any, path: Path, key: str) -> Any:
    """Convert a value of TOML to a type; the fields of a table replace those of `base`, if there is one."""
    for member in _members(hint):
        if member is Any:
            return value
        if isinstance(member, Mapping) and isinstance(value, dict):
            _check_keys(value, list(member), path, f"{key}.")
            return {**(base or {}), **_convert_table(value, member, base, path, key)}
        if is_dataclass(member) and isinstance(value, dict):
            return _build(value, member, base, path, key)
        if _items(member) is not None and isinstance(value, list):
            return _convert_list(value, member, path, key)
        if get_origin(member) is Literal and any(type(value) is type(x) and value == x for x in get_args(member)):
            return value
        if member is float and type(value) in (int, float):
            return float(value)
        if member is Path and isinstance(value, str):
            return Path(value)
        if member in (bool, int, str) and type(value) is member:  # True is an int of Python, but not of TOML
            return value
    if value == _NONE and NoneType in get_args(hint):
        return None
    raise ValueError(f"{path}: {key} is {value!r}; expected {_describe(hint)}")


def _convert_table(value: dict[str, Any], types: Mapping[str, Any], base: Any, path: Path, key: str) -> dict[str, Any]:
    nested = base if isinstance(base, Mapping) else {name: getattr(base, name, None) for name in types}
    return {name: _convert(item, types[name], nested.get(name), path, f"{key}.{name}") for name, item in value.items()}


def _build(value: dict[str, Any], cls: Any, base: Any, path: Path, key: str) -> Any:
    """Build a dataclass instance from a TOML table; missing fields are those of `base`."""
    types = field_types(cls)
    _check_keys(value, list(types), path, f"{key}.")
    base = base if isinstance(base, cls) else None
    required = [field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING]
    if base is None and (missing := [name for name in required if name not in value]):
        raise ValueError(f"{path}: {key} has no {missing[0]}; expected {', '.join(required)}")
    converted = _convert_table(value, types, base, path, key)
    try:
        return cls(**converted) if base is None else replace(base, **converted)
    except ValueError as error:
        raise ValueError(f"{path}: {key}: {error}") from error


def _convert_list(value: list[Any], hint: Any, path: Path, key: str) -> Any:
    items = _items(hint)
    if isinstance(items, tuple) and len(items) != len(value):
        raise ValueError(f"{path}: {key} is {value!r}; expected {_describe(hint)}")
    types = items if isinstance(items, tuple) else [items] * len(value)
    converted = [
        _convert(item, item_type, None, path, f"{key}[{n}]")
        for n, (item, item_type) in enumerate(zip(value, types, strict=True))
    ]
    return tuple(converted) if get_origin(hint) is tuple else converted


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union without None; of any other type, the type itself."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(member for member in get_args(hint) if member is not NoneType)
    return (hint,)


def _items(hint: Any) -> Any:
    """Return the type of the items of a list, a tuple of types if each item has its own, or None for other types."""
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        return arguments[0] if arguments[1:] == (...,) else arguments
    return arguments[0] if get_origin(hint) in (list, Sequence) else None


def _describe(hint: Any) -> str:
    """Return a description of a type for messages, such as "a list of 2: a number, a number"."""
    names = []
    for member in _members(hint):
        items = _items(member)
        if isinstance(items, tuple):
            names.append(f"a list of {len(items)}: {', '.join(map(_describe, items))}")
        elif items is not None:
            names.append(f"a list, each item {_describe(items)}")
        elif get_origin(member) is Literal:
            names += map(str, get_args(member))
        else:
            names.append("a table" if isinstance(member, Mapping) else _SCALARS.get(member, "a table"))
    if NoneType in get_args(hint):
        names.append(f'"{_NONE}"')
    return " or ".join(dict.fromkeys(names))
