"""The command `presets`."""

from __future__ import annotations

from smoothmix._io.text import counted
from smoothmix.cli.output import table
from smoothmix.config import require


def presets(
    name: str | None = None,
    /,
    *,
    data: str | None = None,
    sigma: float | None = None,
    method: str | None = None,
) -> None:
    """List the paper's rows and the quick ones, or show one as TOML.

    Parameters
    ----------
    name
        One preset, the beginning of some (`mnist/1.00`), or a pattern (`*/smoothmix*`).
    data
        Only those of this data set.
    sigma
        Only those of this noise.
    method
        Only those of this method.
    """
    from smoothmix import presets as library

    name = name and library.spelled(name)
    matching = library.names(name or "*", data=data, sigma=sigma, method=method)
    filters = {"--data": data, "--sigma": sigma, "--method": method}
    given = [option for option, value in filters.items() if value is not None]
    if name in library.names():
        require(not given, f"{name} is one preset: leave out {' and '.join(given)}")
    plain = name is not None and not any(sign in name for sign in "*?[")
    if name is not None and (matching == [name] or (plain and not matching)):
        print(library.to_toml(library.get(name)), end="")
        return
    require(
        bool(matching),
        f"no preset fits {' '.join([name or '', *(f'{o} {v}' for o, v in filters.items() if v)]).strip()}",
    )
    rows = []
    for found in matching:
        preset = library.get(found)
        published = preset.published
        acr = "" if published is None or published.acr is None else f"{published.acr:.3f}"
        rows.append((found, str(preset.config.recipe.epochs), acr, preset.about))
    table(counted(len(rows), "preset"), ("preset", "epochs", "published ACR", "about"), rows)
