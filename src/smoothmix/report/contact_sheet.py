"""Certificates of images without labels as a table for programs and a page for people."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from smoothmix._io.text import counted, for_csv
from smoothmix.certificates import Certificates
from smoothmix.report.html import fill

if TYPE_CHECKING:
    from smoothmix.data import FolderDataset

COLUMNS = ("file", "class", "class_name", "radius", "abstained")

MOST_PICTURES = 1000
"""Images on a page; the table has all."""


@final
@dataclass(frozen=True, kw_only=True)
class Photo:
    """What is certified about one image without a label."""

    file: str
    class_number: int
    """-1 if the votes do not decide."""
    class_name: str
    """Empty if the votes do not decide."""
    radius: str
    """Six decimals, rounded down."""
    abstained: bool


def photos_of(file: Certificates, dataset: FolderDataset) -> list[Photo]:
    """The certificates of a file, with the names of its images and classes."""
    photos = []
    for row in file.rows:
        photo = Photo(
            file=dataset.files[row.idx],
            class_number=row.predict,
            class_name=class_name(dataset.class_names, row.predict),
            radius=f"{row.radius:.6f}",
            abstained=row.predict < 0,
        )
        photos.append(photo)
    return photos


def class_name(names: Sequence[str], number: int) -> str:
    """The name of a class, or its number if it has none; empty for an abstention."""
    if number < 0:
        return ""
    if number < len(names):
        return names[number]
    return str(number)


def as_tsv(photos: Sequence[Photo]) -> str:
    """A line for each image, after a header."""
    lines = ["\t".join(COLUMNS)]
    for photo in photos:
        cells = (
            for_csv(photo.file),
            str(photo.class_number),
            for_csv(photo.class_name),
            photo.radius,
            str(int(photo.abstained)),
        )
        # A name may hold any character, also one that would begin another cell.
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return "\n".join(lines) + "\n"


def as_json(photos: Sequence[Photo], facts: dict[str, Any]) -> str:
    """The same as JSON, with the `facts` that hold for all images."""
    images = []
    for photo in photos:
        values = asdict(photo)
        values["radius"] = float(photo.radius)
        images.append(values)
    return json.dumps({**facts, "images": images}, indent=1) + "\n"


def facts_of(file: Certificates) -> dict[str, Any]:
    """What holds for all certificates of a file."""
    settings = file.settings
    assert settings is not None
    return {
        "model": settings.model,
        "noise": settings.certification.noise.name,
        "norm": settings.certification.noise.norm,
        "sigma": settings.certification.sigma,
        "alpha": settings.guarantee.alpha,
        "images_are": settings.data_note,
        "certificates": file.path.name,
    }


def as_page(file: Certificates, dataset: FolderDataset) -> str:
    """A page with every image as it was certified; one HTML file that needs nothing else."""
    photos = photos_of(file, dataset)
    facts = facts_of(file)
    shown = []
    for row, photo in list(zip(file.rows, photos, strict=True))[:MOST_PICTURES]:
        shown.append(asdict(photo) | {"picture": _picture(dataset, row.idx)})
    claim = (
        f"{counted(len(photos), 'image')} without labels, certified for {facts['model']}: "
        f"sigma {facts['sigma']:g}, each certificate wrong with chance at most "
        f"{facts['alpha']:g}, radii in the {facts['norm']} norm for pixels in [0, 1]."
    )
    meaning = (
        f"Images are {facts['images_are']}. A radius says how far the class cannot change; it "
        "does not say that the class is right."
    )
    sentences = [claim, meaning]
    if len(photos) > len(shown):
        sentences.append(f"The first {len(shown):,} are shown.")
    return fill(
        "contact.html", scripts=(), title="Certified images", sentences=sentences, photos=shown
    )


def _picture(dataset: FolderDataset, index: int) -> str:
    """The image as it was certified, as PNG in base64."""
    from PIL import Image

    (pixels,) = (dataset.images([index]) * 255).round().byte().numpy()
    if len(pixels) == 1:
        image = Image.fromarray(pixels[0])
    else:
        image = Image.fromarray(pixels.transpose(1, 2, 0))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
