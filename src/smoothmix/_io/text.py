"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural.

    >>> counted(1, "run"), counted(10_000, "image")
    ('1 run', '10,000 images')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"
