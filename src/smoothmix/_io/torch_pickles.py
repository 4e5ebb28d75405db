"""What a pickle by torch.save asks for, found out without doing it.

`torch.load(weights_only=True)` runs no foreign code, but it is obedient: a few hundred bytes can have it make a
bytearray of gigabytes, double a text with every call, or hash a key of nested pairs for centuries. So each
pickle is first walked here, by a machine that knows only what weights, the state of an optimiser and plain values need.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, final

ITEM_SIZES: Mapping[str, int] = {
    "torch.DoubleStorage": 8,
    "torch.FloatStorage": 4,
    "torch.HalfStorage": 2,
    "torch.BFloat16Storage": 2,
    "torch.LongStorage": 8,
    "torch.IntStorage": 4,
    "torch.ShortStorage": 2,
    "torch.CharStorage": 1,
    "torch.ByteStorage": 1,
    "torch.BoolStorage": 1,
}
"""Bytes of a number, by the name under which a file stores it."""

MOST_AXES = 16
ENTRY = 64
"""Bytes, at least, of one entry in the copy of a dict."""
SHARING = 16
"""How often the tensors of a file may use its bytes on average: two layers that share weights use them twice."""


class ForbiddenNameError(Exception):
    """A pickle asked for something that no file of weights needs."""


@final
class _Ordered(dict[Any, Any]):
    """Stands for an OrderedDict."""


@final
@dataclass(frozen=True, slots=True)
class _Name:
    """Stands for what the pickle calls by this name."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class _Storage:
    """Stands for the numbers that tensors are made of."""

    numel: int
    item_size: int


@final
@dataclass(frozen=True, slots=True)
class _Opaque:
    """Stands for a value that nothing more is asked about: a tensor, a shape, a device."""


@final
@dataclass
class Budget:
    """How many bytes the storages and the tensors of one file may have, and what they have so far."""

    size: int
    storages: dict[str, int] = field(default_factory=dict)
    used: int = 0

    def store(self, key: str, count: int) -> None:
        """Count a storage, once however often it is named."""
        self.storages[key] = max(count, self.storages.get(key, 0))
        _require(count <= self.size, "more numbers than the file holds")

    def use(self, count: int) -> None:
        """Count a tensor, or a copy of a dict."""
        self.used += count
        _require(self.used <= SHARING * self.size, "the same numbers used again and again")

    def check(self) -> None:
        """Refuse storages that are together larger than the file: legacy files take memory for what they declare."""
        _require(sum(self.storages.values()) <= self.size, "more numbers than the file holds")


def walk(stream: IO[bytes], budget: Budget) -> Any:
    """The value of the next pickle in a stream, with stand-ins for tensors; ValueError where it is not plain."""
    machine = _Machine(budget)
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "STOP":
            return machine.pop()
        machine.step(opcode.name, argument)
    raise ValueError("no end")  # pragma: no cover - genops complains first


@final
@dataclass
class _Machine:
    """The stack machine of pickle, as far as torch.save uses it."""

    budget: Budget
    stack: list[Any] = field(default_factory=list)
    below: list[list[Any]] = field(default_factory=list)
    """The stacks that marks have put aside."""
    memo: dict[int, Any] = field(default_factory=dict)

    def step(self, opcode: str, argument: Any) -> None:
        if opcode in VALUES:
            self.stack.append(VALUES[opcode](argument))
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.top()
        elif opcode in ("BINGET", "LONG_BINGET"):
            _require(argument in self.memo, "a reference to nothing")
            self.stack.append(self.memo[argument])
        elif opcode == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif opcode in ACTIONS:
            ACTIONS[opcode](self)
        else:
            _require(opcode == "PROTO", f"the instruction {opcode}")

    def top(self) -> Any:
        _require(bool(self.stack), "an empty stack")
        return self.stack[-1]

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        _require(bool(self.below), "no mark")
        items, self.stack = self.stack, self.below.pop()
        return items

    def push_tuple(self) -> None:
        items = tuple(self.pop_mark())
        self.stack.append(items)

    def pop_some(self, count: int) -> tuple[Any, ...]:
        return tuple([self.pop() for _ in range(count)][::-1])

    def extend(self, items: list[Any]) -> None:
        _require(type(self.top()) is list, "something added to what is no list")
        self.top().extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.top()
        _require(
            type(target) in (dict, _Ordered) and len(items) % 2 == 0,
            "something set in what is no dict",
        )
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Tuples may take forever to hash, and large numbers can be chosen to have one hash.
            _require(
                type(key) is str or (type(key) is int and abs(key) < 2**31), "a key that is no text"
            )
            target[key] = value

    def load_storage(self) -> None:
        """A persistent id: ("storage", type, key, location, count), and None more in legacy files."""
        match self.pop():
            case ("storage", _Name(path), str(key), str(), int(numel), *rest) if (
                path in ITEM_SIZES and numel >= 0
            ):
                _require(rest in ([], [None]), "a view of a storage")
                self.budget.store(key, numel * ITEM_SIZES[path])
                self.stack.append(_Storage(numel, ITEM_SIZES[path]))
            case _:
                raise ValueError("a persistent id that is no storage")

    def reduce(self) -> None:
        name, arguments = self.pop_some(2)
        _require(type(name) is _Name and type(arguments) is tuple, "a call of what is no function")
        self.stack.append(self.call(name.path, arguments))

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name, arguments:
            case "collections.OrderedDict", ():
                return _Ordered()
            case "collections.Counter", (dict() as counts,):  # in what learning rate schedules save
                self.budget.use(ENTRY * len(counts))
                return _Opaque()
            case "torch._utils._rebuild_tensor_v2", (
                _Storage() as storage,
                int(),
                shape,
                stride,
                bool(),
                *rest,
            ):
                hooks = [value for value in rest if value is not None]
                _require(_whole_numbers(shape) and _whole_numbers(stride), "a shape that is none")
                _require(math.prod(shape) <= storage.numel, "a tensor larger than its numbers")
                _require(
                    len(rest) <= 2 and all(type(value) is _Ordered for value in hooks),
                    "a tensor with more to it",
                )
                self.budget.use(math.prod(shape) * storage.item_size)
                return _Opaque()
            case "torch._utils._rebuild_parameter", (_Opaque(), bool(), _Ordered()):
                return _Opaque()
            case "torch.Size", (shape,) if _whole_numbers(shape):
                return _Opaque()
            case "torch.device", (str(),):
                return _Opaque()
        raise ValueError(f"a call of {name} with odd arguments")

    def build(self) -> None:
        target, state = self.pop_some(2)
        _require(type(target) is _Ordered and type(state) is dict, "a state for what has none")
        self.budget.use(ENTRY * len(state))
        self.stack.append(target)


def _name(argument: str) -> _Name:
    path = argument.replace(" ", ".", 1)
    if path not in NAMES:
        raise ForbiddenNameError(path)
    return _Name(path)


def _whole_numbers(value: object) -> bool:
    """Whether this is a shape: few whole numbers, none of them negative."""
    return (
        type(value) is tuple
        and len(value) <= MOST_AXES
        and all(type(number) is int and 0 <= number < 2**62 for number in value)
    )


def _require(condition: bool, found: str) -> None:
    if not condition:
        raise ValueError(found)


NAMES = frozenset(
    {
        *ITEM_SIZES,
        "collections.OrderedDict",
        "collections.Counter",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
        "torch.Size",
        "torch.device",
        *(
            f"torch.{kind}"
            for kind in (
                "float16",
                "float32",
                "float64",
                "bfloat16",
                "int64",
                "int32",
                "uint8",
                "bool",
            )
        ),
    }
)

VALUES: Mapping[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "GLOBAL": _name,
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"),
        lambda value: value,
    ),
}
"""Instructions that push a value made of their argument."""

ACTIONS: Mapping[str, Callable[[_Machine], None]] = {
    "TUPLE": _Machine.push_tuple,
    "TUPLE1": lambda machine: machine.stack.append(machine.pop_some(1)),
    "TUPLE2": lambda machine: machine.stack.append(machine.pop_some(2)),
    "TUPLE3": lambda machine: machine.stack.append(machine.pop_some(3)),
    "APPEND": lambda machine: machine.extend([machine.pop()]),
    "APPENDS": lambda machine: machine.extend(machine.pop_mark()),
    "SETITEM": lambda machine: machine.update(list(machine.pop_some(2))),
    "SETITEMS": lambda machine: machine.update(machine.pop_mark()),
    "BINPERSID": _Machine.load_storage,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
"""Instructions that take values off the stack."""
