"""Text that people read: numbers in sentences, and text from outside as each target may show it.

Names of files, folders, models and classes are anyone's text. A terminal obeys escape sequences, a
LaTeX file runs commands, a spreadsheet computes cells that begin with an equals sign. Everything
that is shown goes through the function of its target here.
"""

from __future__ import annotations

import re
import unicodedata

LINE_END = "\n"
TAB = "\t"

CONTROL = "Cc"
"""Unicode's category of control characters."""

SPACE_SEPARATOR = "Zs"
"""Unicode's category of spaces. Python counts all but the ordinary one as not printable."""


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural.

    >>> counted(1, "run"), counted(10_000, "image")
    ('1 run', '10,000 images')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def for_terminal(text: object) -> str:
    r"""The text on one line, with every character that does not print as itself written out.

    These are control characters, which begin the escape sequences of terminals, line ends, marks
    that reverse the direction of the text after them, and what is not Unicode at all.

    >>> print(for_terminal("a\x1b[2Jb"), for_terminal("one\ntwo"))
    a\x1b[2Jb one\ntwo
    """
    return "".join(map(_visible, str(text)))


def for_terminal_lines(text: object) -> str:
    r"""The same for text of several lines and with tabs, which stay as they are.

    >>> print(for_terminal_lines("one\ntwo\x07"))
    one
    two\x07
    """
    return "".join(map(_visible_in_lines, str(text)))


DIRECTION_MARKS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Characters that decide in which direction the text after them runs."""


def for_html(text: str) -> str:
    r"""Text for a page, before the template escapes its markup.

    Browsers show nothing for control characters, and obey marks that reverse the text after them.

    >>> for_html("smooth\u202exim")
    'smooth\\u202exim'
    """
    return "".join(map(_visible_on_page, text))


def _visible_on_page(character: str) -> str:
    is_control = unicodedata.category(character) == CONTROL
    if is_control or character in DIRECTION_MARKS:
        return _visible_in_lines(character)
    return character


def _visible(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == SPACE_SEPARATOR:
        return character
    return character.encode("unicode_escape").decode()


def _visible_in_lines(character: str) -> str:
    if character in (LINE_END, TAB):
        return character
    return _visible(character)


LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "σ": r"$\sigma$",
    "−": r"$-$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
}
"""What TeX's special characters, and those it has no glyph for, are written as."""

LATEX_TABLE = str.maketrans(LATEX)


def for_latex(text: str) -> str:
    r"""The text with TeX's special characters escaped, on one line.

    >>> print(for_latex("eta_5 & 99.2 ± 0.1 %"))
    eta\_5 \& 99.2 $\pm$ 0.1 \%
    """
    # In one pass, so that the backslashes of a replacement are not replaced again.
    return for_terminal(text).translate(LATEX_TABLE)


def for_latex_comment(text: str) -> str:
    r"""The text after a percent sign: TeX ignores all of it up to the end of the line.

    >>> print(for_latex_comment("a\n\\input{b}"))
    a\n\input{b}
    """
    return for_terminal(text)


FORMULA = re.compile(r"(^|;)(\s*[=@+\-＝＠＋－])", re.MULTILINE)
"""What a spreadsheet would compute. Where a comma is the decimal sign, cells end at semicolons."""

NUMBERS = re.compile(r"[-+\d.,:eE]*")
"""Numbers and votes by class, such as -0.25 or -1:3,7:97: without names nothing can be called."""


def for_csv(text: str) -> str:
    """The text as a cell that no spreadsheet takes for a formula; numbers stay as they are.

    An apostrophe before it is how spreadsheets themselves mark a cell as text.

    >>> for_csv("=cmd()"), for_csv("-0.25"), for_csv("smoothmix-eta5")
    ("'=cmd()", '-0.25', 'smoothmix-eta5')
    """
    # Programs read a cell of several lines as it was; tabs would separate cells.
    shown = LINE_END.join(map(for_terminal, text.split(LINE_END)))
    if NUMBERS.fullmatch(shown):
        return shown
    return FORMULA.sub(r"\1'\2", shown)


def for_markdown(text: str) -> str:
    """The text with Markdown's special characters escaped, on one line.

    >>> for_markdown("a|b <script>")
    'a\\\\|b &lt;script>'
    """
    shown = for_terminal(text)
    # Underscores within words and most other marks are harmless.
    for mark in "\\|*`":
        shown = shown.replace(mark, f"\\{mark}")
    # Brackets alone are intervals; followed by a parenthesis they are links and images.
    return shown.replace("](", "]\\(").replace("<", "&lt;")
