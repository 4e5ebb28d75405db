"""Things by name: ours, those of installed packages, and anybody's by `package.module:name`.

A registry holds what the package brings along, what other installed packages announce as Python
entry points, and finds everything else by an address such as `mypackage.losses:MyMethod`. Nothing
is imported before it is asked for. No torch.

Settings files may hold addresses too, and a file must never decide which code runs. An address is
therefore followed only into modules that the user trusts: those that the command line names, and
those passed to `trust`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Generic, TypeVar, cast

from smoothmix.errors import UsageError, shown, unknown_name

T = TypeVar("T")


def is_address(name: str) -> bool:
    """Whether a name is an address such as `package.module:name`.

    >>> is_address("mypackage.losses:MyMethod"), is_address("gaussian"), is_address("npz:a.npz")
    (True, False, False)
    """
    module, colon, attribute = name.partition(":")
    if not colon or not attribute:
        return False
    dotted_names = (*module.split("."), *attribute.split("."))
    return all(map(str.isidentifier, dotted_names)) and "." not in attribute


def split_address(address: str) -> tuple[str, str]:
    """The module and the name in an address.

    >>> split_address("mypackage.losses:MyMethod")
    ('mypackage.losses', 'MyMethod')
    """
    if not is_address(address):
        raise UsageError(f"{shown(address)!r} is no address: give package.module:name")
    module, _, attribute = address.partition(":")
    if module.endswith(".py"):
        module = module.removesuffix(".py")
        raise UsageError(
            f"{address!r} names a file: give the module without .py, {module}:{attribute}"
        )
    return module, attribute


def load_object(address: str) -> object:
    """The object at `package.module:name`; the module must be importable.

    >>> load_object("fractions:Fraction").__name__
    'Fraction'
    """
    module_name, attribute = split_address(address)
    try:
        module = import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise UsageError(
            f"cannot import {module_name} ({error}): "
            "install it, or run the command in the folder that holds it"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UsageError(f"the module {module_name} has no {attribute!r}") from None


_trusted: set[str] = set()


def trust(*modules: str) -> None:
    """Allow addresses in these modules, such as `mypackage.losses`, also where files name them."""
    _trusted.update(modules)


def require_trusted(address: str) -> None:
    """Refuse an address in a module that the user has not named as trusted."""
    module, _ = split_address(address)
    if module not in _trusted:
        raise UsageError(
            f"{shown(address)} is code outside of smoothmix, which no file may start by itself: "
            f"if you trust it, add --import {shown(module)} to the command, or call "
            f"smoothmix.trust({shown(module)!r}) in Python"
        )


def address_of(cls: type) -> str:
    """Where a class can be found again: `package.module:Class`.

    >>> from fractions import Fraction
    >>> address_of(Fraction)
    'fractions:Fraction'
    """
    return f"{cls.__module__}:{cls.__qualname__}"


class Registry(Generic[T]):
    """Values of one kind by name."""

    calls_values: ClassVar[bool] = False
    """Whether values are functions that are called, which makes any function at all dangerous."""

    def __init__(self, kind: str, *, group: str, own: Mapping[str, T]) -> None:
        """`kind` is for messages, `group` names the entry points, `own` holds our values."""
        self.kind = kind
        self.group = group
        self._own = dict(own)

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """What installed packages announce. A name of ours cannot be taken over by them."""
        found = {}
        for entry in entry_points(group=self.group):
            if entry.name not in self._own:
                found[entry.name] = entry
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._installed

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._installed

    def __len__(self) -> int:
        return len(self._own) + len(self._installed)

    def __getitem__(self, name: str) -> T:
        """The value of that name; an unknown name is refused with the nearest one that is known."""
        if name in self._own:
            return self._own[name]
        if name in self._installed:
            return self._from_package(self._installed[name])
        if is_address(name):
            return self._from_address(name)
        unknown = unknown_name(self.kind, name, self)
        raise UsageError(f"{unknown}; one of your own is named by package.module:name")

    def _from_address(self, address: str) -> T:
        module, _ = split_address(address)
        # A value of a module that is imported already is only inspected: `adopt` checks its type.
        if self.calls_values or module not in sys.modules:
            require_trusted(address)
        return self.adopt(address, load_object(address))

    def adopt(self, name: str, value: object) -> T:
        """What a value from outside becomes here; a subclass may check it or wrap it."""
        return cast("T", value)

    def _from_package(self, entry: EntryPoint) -> T:
        try:
            value = entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the {self.kind} {entry.name!r} of an installed package cannot be loaded "
                f"({error}): reinstall that package"
            ) from error
        return self.adopt(entry.name, value)


class ClassRegistry(Registry[type[T]]):
    """Classes of one kind by name; anything from outside must be a subclass of the same base."""

    def __init__(self, kind: str, base: type, *, group: str, own: Mapping[str, type[T]]) -> None:
        super().__init__(kind, group=group, own=own)
        self.base = base

    def adopt(self, name: str, value: object) -> type[T]:
        if not (isinstance(value, type) and issubclass(value, self.base)):
            raise UsageError(
                f"{name} is not a {self.kind}: it must be a subclass of {address_of(self.base)}"
            )
        return cast("type[T]", value)
