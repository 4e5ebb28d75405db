"""What a pickle by torch.save asks for, found out without doing it.

Unpickling is a stack machine: instructions push values, call functions by name and fill
containers. `walk_pickle` runs the same instructions on stand-ins: tensors become `_Opaque`, and
functions are only known by name. It knows just the instructions and names that weights, the
state of an optimiser and plain values need, and counts the memory that torch would take.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, final

BYTES_PER_NUMBER: Mapping[str, int] = {
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
"""By the name of the storage class in the file."""

ALLOWED_NAMES = frozenset(BYTES_PER_NUMBER) | {
    "collections.OrderedDict",
    "collections.Counter",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    "torch.Size",
    "torch.device",
    "torch.float16",
    "torch.float32",
    "torch.float64",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.uint8",
    "torch.bool",
}
"""Everything that a pickle may name."""

MAX_AXES = 16

DICT_ENTRY_BYTES = 64
"""Memory, at least, of one entry in the copy of a dict."""

MAX_SHARING = 16
"""How often tensors may use the bytes of a file on average; shared layers use them twice."""


class ForbiddenNameError(Exception):
    """A pickle asked for something that no file of weights needs."""


@final
class _OrderedDict(dict[Any, Any]):
    """Stands for an OrderedDict."""


@final
@dataclass(frozen=True, slots=True)
class _Name:
    """Stands for the class or function that the pickle calls by this name."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class _Storage:
    """Stands for the numbers that tensors are made of."""

    numel: int
    bytes_per_number: int


@final
@dataclass(frozen=True, slots=True)
class _Opaque:
    """Stands for a value that needs no further check: a tensor, a shape, a device."""


@final
@dataclass
class SizeLimits:
    """What the storages and tensors of one file may take, and what they take so far."""

    file_size: int
    storages: dict[str, int] = field(default_factory=dict)
    used: int = 0

    def add_storage(self, key: str, size: int) -> None:
        """Count a storage, once however often it is named."""
        self.storages[key] = max(size, self.storages.get(key, 0))
        _require(size <= self.file_size, "more numbers than the file holds")

    def add_use(self, size: int) -> None:
        """Count a tensor, or the copy of a dict."""
        self.used += size
        _require(self.used <= MAX_SHARING * self.file_size, "the same numbers used too often")

    def check_total(self) -> None:
        """Refuse storages that are larger than the file in total."""
        # For a legacy file torch allocates what the storages declare, before it reads them.
        total = sum(self.storages.values())
        _require(total <= self.file_size, "more numbers than the file holds")


def walk_pickle(stream: IO[bytes], limits: SizeLimits) -> Any:
    """The value of the next pickle in a stream, with stand-ins for tensors.

    Raises ForbiddenNameError for a name that is not allowed, and ValueError for anything else
    that is not plain.
    """
    machine = _Machine(limits)
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "STOP":
            return machine.pop()
        machine.execute(opcode.name, argument)
    raise ValueError("no end")  # pragma: no cover - genops raises first


@final
@dataclass
class _Machine:
    """The stack machine of pickle, as far as torch.save uses it."""

    limits: SizeLimits
    stack: list[Any] = field(default_factory=list)
    outer_stacks: list[list[Any]] = field(default_factory=list)
    """The stacks below each mark."""
    memo: dict[int, Any] = field(default_factory=dict)

    def execute(self, opcode: str, argument: Any) -> None:
        if opcode in CONSTANTS:
            self.stack.append(CONSTANTS[opcode](argument))
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.top()
        elif opcode in ("BINGET", "LONG_BINGET"):
            _require(argument in self.memo, "a reference to nothing")
            self.stack.append(self.memo[argument])
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

    def pop_many(self, count: int) -> tuple[Any, ...]:
        values = [self.pop() for _ in range(count)]
        return tuple(reversed(values))

    def mark(self) -> None:
        self.outer_stacks.append(self.stack)
        self.stack = []

    def pop_to_mark(self) -> list[Any]:
        _require(bool(self.outer_stacks), "no mark")
        items = self.stack
        self.stack = self.outer_stacks.pop()
        return items

    def push_tuple_to_mark(self) -> None:
        items = self.pop_to_mark()
        self.stack.append(tuple(items))

    def push_tuple(self, count: int) -> None:
        self.stack.append(self.pop_many(count))

    def extend_list(self, items: list[Any]) -> None:
        _require(type(self.top()) is list, "an item added to something that is not a list")
        self.top().extend(items)

    def update_dict(self, items: list[Any]) -> None:
        target = self.top()
        _require(
            type(target) in (dict, _OrderedDict) and len(items) % 2 == 0,
            "an entry set in something that is not a dict",
        )
        for key, value in zip(items[::2], items[1::2], strict=True):
            _require(_is_plain_key(key), "a key that is not text")
            target[key] = value

    def push_storage(self) -> None:
        """A persistent id: ("storage", type, key, location, count), then None in legacy files."""
        match self.pop():
            case ("storage", _Name(path), str(key), str(), int(numel), *rest) if (
                path in BYTES_PER_NUMBER and numel >= 0
            ):
                _require(rest in ([], [None]), "a view of a storage")
                storage = _Storage(numel, BYTES_PER_NUMBER[path])
                self.limits.add_storage(key, numel * storage.bytes_per_number)
                self.stack.append(storage)
            case _:
                raise ValueError("a persistent id that is not a storage")

    def reduce(self) -> None:
        name, arguments = self.pop_many(2)
        _require(
            type(name) is _Name and type(arguments) is tuple,
            "a call of something that is not a function",
        )
        self.stack.append(self.call(name.path, arguments))

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The stand-in for what a function would return."""
        match name, arguments:
            case "collections.OrderedDict", ():
                return _OrderedDict()
            # Schedules of the learning rate save a Counter of milestones.
            case "collections.Counter", (dict() as counts,):
                self.limits.add_use(DICT_ENTRY_BYTES * len(counts))
                return _Opaque()
            case "torch._utils._rebuild_tensor_v2", (_Storage(), int(), _, _, bool(), *_):
                return self.tensor(*arguments)
            case "torch._utils._rebuild_parameter", (_Opaque(), bool(), _OrderedDict()):
                return _Opaque()
            case "torch.Size", (shape,) if _is_shape(shape):
                return _Opaque()
            case "torch.device", (str(),):
                return _Opaque()
        raise ValueError(f"a call of {name} with unexpected arguments")

    def tensor(
        self,
        storage: _Storage,
        _offset: int,
        shape: Any,
        stride: Any,
        _requires_grad: bool,
        *hooks: Any,
    ) -> _Opaque:
        _require(_is_shape(shape) and _is_shape(stride), "a shape that is not one")
        numel = math.prod(shape)
        _require(numel <= storage.numel, "a tensor larger than its storage")
        _require(len(hooks) <= 2, "a tensor with extra state")
        for value in hooks:
            _require(value is None or type(value) is _OrderedDict, "a tensor with extra state")
        self.limits.add_use(numel * storage.bytes_per_number)
        return _Opaque()

    def set_attributes(self) -> None:
        target, state = self.pop_many(2)
        _require(
            type(target) is _OrderedDict and type(state) is dict,
            "attributes for something that has none",
        )
        self.limits.add_use(DICT_ENTRY_BYTES * len(state))
        self.stack.append(target)


def _allowed_name(argument: str) -> _Name:
    path = argument.replace(" ", ".", 1)
    if path not in ALLOWED_NAMES:
        raise ForbiddenNameError(path)
    return _Name(path)


def _is_plain_key(key: object) -> bool:
    # Nested tuples may take forever to hash, and large integers can be chosen to share one hash.
    if type(key) is int:
        return abs(key) < 2**31
    return type(key) is str


def _is_shape(value: object) -> bool:
    """Whether this is a tuple of few whole numbers, none of them negative."""
    if type(value) is not tuple or len(value) > MAX_AXES:
        return False
    return all(type(number) is int and 0 <= number < 2**62 for number in value)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _unchanged(argument: Any) -> Any:
    return argument


CONSTANTS: Mapping[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "GLOBAL": _allowed_name,
    "BININT": _unchanged,
    "BININT1": _unchanged,
    "BININT2": _unchanged,
    "LONG1": _unchanged,
    "BINFLOAT": _unchanged,
    "BINUNICODE": _unchanged,
    "SHORT_BINSTRING": _unchanged,
}
"""Instructions that push a value made from their argument."""

ACTIONS: Mapping[str, Callable[[_Machine], None]] = {
    "MARK": _Machine.mark,
    "TUPLE": _Machine.push_tuple_to_mark,
    "TUPLE1": lambda machine: machine.push_tuple(1),
    "TUPLE2": lambda machine: machine.push_tuple(2),
    "TUPLE3": lambda machine: machine.push_tuple(3),
    "APPEND": lambda machine: machine.extend_list([machine.pop()]),
    "APPENDS": lambda machine: machine.extend_list(machine.pop_to_mark()),
    "SETITEM": lambda machine: machine.update_dict(list(machine.pop_many(2))),
    "SETITEMS": lambda machine: machine.update_dict(machine.pop_to_mark()),
    "BINPERSID": _Machine.push_storage,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.set_attributes,
}
"""Instructions that work on the stack."""
