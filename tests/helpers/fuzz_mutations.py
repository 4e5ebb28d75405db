"""Ways to damage a valid file: as chance would, and as an attacker would."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

NUMBERS = (
    0,
    1,
    2,
    4,
    7,
    8,
    16,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**63 - 1,
)
WIDTHS = (1, 2, 4, 8)
WORDS = (
    *(str(number) for number in (*NUMBERS, -1, 2**64, 10**30)),
    *(
        "",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e-400",
        "0.5",
        "1e300",
        "true",
        "null",
        "{}",
        "[]",
        "[[[[",
        '""',
        "9" * 5000,
    ),
    *(
        "\x00",
        "\x1b[2J",
        "\u2028",
        "<script>",
        "é",
        "a.b.c",
        "'''",
        '"""',
        "#",
        "=",
        "\t",
        "\r",
        "\n",
        "\ufeff",
    ),
)
NUMBER = re.compile(rb"[-+]?[0-9]+(?:\.[0-9]+)?")


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """The content after one to four damages; `others` are valid files to take pieces from."""
    for _ in range(random.choice((1, 1, 2, 4))):
        content = random.choice(DAMAGES)(content, others, random)
    return content


def _flip_bit(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, max(0, len(content) - 1))
    return (
        content[:at]
        + bytes(byte ^ (1 << random.randint(0, 7)) for byte in content[at : at + 1])
        + content[at + 1 :]
    )


def _set_byte(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + bytes([random.randint(0, 255)]) + content[at + 1 :]


def _truncate(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    return content[: random.randint(0, len(content))]


def _remove(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    start, end = _range(content, random)
    return content[:start] + content[end:]


def _duplicate(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    start, end = _range(content, random)
    return content[:end] + content[start:end] * random.choice((1, 1, 2, 20)) + content[end:]


def _splice(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    start, end = _range(other, random)
    at, until = _range(content, random)
    return content[:at] + other[start:end] + content[random.choice((at, until)) :]


def _set_number(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    width, at = random.choice(WIDTHS), random.randint(0, len(content))
    number = (random.choice(NUMBERS) % 2 ** (8 * width)).to_bytes(
        width, random.choice(("little", "big"))
    )
    return content[:at] + number + content[at + width :]


def _set_word(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    """Another number, or none, where a text has one."""
    found = list(NUMBER.finditer(content[:20_000]))
    if not found:
        return _insert_word(content, _, random)
    start, end = random.choice(found).span()
    return content[:start] + random.choice(WORDS).encode() + content[end:]


def _insert_word(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + random.choice(WORDS).encode() + content[at:]


def _insert_noise(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(content))
    return (
        content[:at]
        + bytes(random.randint(0, 255) for _ in range(random.randint(1, 12)))
        + content[at:]
    )


def _rearrange(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    """Lines or fields swapped, dropped or doubled: still what a parser expects, but not where."""
    mark = random.choice((b"\n", b"\t", b",", b" ", b'"', b"=", b"q"))
    pieces = content.split(mark)
    first, second = random.randint(0, len(pieces) - 1), random.randint(0, len(pieces) - 1)
    pieces[first] = random.choice((pieces[second], b"", pieces[first] + mark + pieces[second]))
    return mark.join(pieces)


def _nest(content: bytes, _: Sequence[bytes], random: Random) -> bytes:
    start, end = _range(content, random)
    left, right = random.choice(((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b"a.", b"")))
    depth = random.choice((1, 3, 30, 2000))
    return content[:start] + left * depth + content[start:end] + right * depth + content[end:]


def _range(content: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.choice((1, 2, 4, 8, 16, 64, 512)))


DAMAGES: Sequence[Callable[[bytes, Sequence[bytes], Random], bytes]] = (
    *(
        _flip_bit,
        _set_byte,
        _truncate,
        _remove,
        _duplicate,
        _splice,
        _set_number,
        _set_word,
        _set_word,
    ),
    *(_insert_word, _insert_noise, _rearrange, _nest),
)
