"""Numbers in sentences."""


def counted(number: int, thing: str) -> str:
    """So many things.

    >>> counted(1, "run"), counted(10_000, "image")
    ('1 run', '10,000 images')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
