"""Attack a smoothed classifier on the images of a data set, into a file that can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.attacks.nearest import nearest_attack
from smoothmix.certificates.attack_file import (
    Attack,
    Attacks,
    AttackSettings,
    SearchSettings,
    load_attack_settings,
    read_attacks,
    writing_attacks,
)
from smoothmix.certify.engine import engine_of_record
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import require
from smoothmix.data import Dataset
from smoothmix.inference.guards import check_images, check_noise, warn_of_doubts
from smoothmix.networks import state_hash
from smoothmix.noise import GridNoise

USUAL_SEARCH = SearchSettings()


def attack_dataset(
    smoothed: Smoothed,
    dataset: Dataset,
    indices: Sequence[int],
    *,
    path: Path | str,
    model_name: str,
    search: SearchSettings = USUAL_SEARCH,
    on_progress: OnProgress = ignore_progress,
) -> Attacks:
    """The attacks on images of a data set; those that the file has already are not repeated."""
    path = Path(path)
    noise = smoothed.distribution
    require(
        noise.norm == "L2",
        f"attacks look for small L2 distances, and {noise.name} noise certifies {noise.norm} "
        "radii: choose --noise grid or gaussian",
    )
    # An attack is resumed by the engine that began it.
    if smoothed.engine == "auto" and path.exists():
        record = load_attack_settings(path).engine
        smoothed = replace(smoothed, engine=engine_of_record(path, record))
    with smoothed.open(dataset.shape, seed=search.seed) as sampler:
        settings = AttackSettings(
            search=search,
            model=model_name,
            model_hash=state_hash(smoothed.model),
            data=dataset.name,
            split=dataset.split,
            data_hash=dataset.fingerprint,
            num_classes=smoothed.num_classes,
            sigma=smoothed.sigma,
            noise=noise.name,
            levels=noise.levels if isinstance(noise, GridNoise) else 0,
            batch=smoothed.batch,
            precision=smoothed.precision,
            engine=sampler.engine,
        )
        # Errors of the network appear here, before there is any file.
        sampler.check_network(dataset.shape)
        warn_of_doubts(smoothed.sigma, dataset)
        with writing_attacks(path, settings) as writer:
            remaining = [index for index in indices if index not in writer.done]
            done = len(indices) - len(remaining)
            on_progress(Progress(done, len(indices), ""))
            for number, index in enumerate(remaining, start=done + 1):
                # One by one: images of a folder may not fit into memory.
                (image,) = dataset.images([index])
                check_images(image[None])
                check_noise(image[None], noise, [index])
                row = nearest_attack(sampler, image, index, int(dataset.labels[index]), search)
                writer.append(row)
                on_progress(Progress(number, len(indices), _note(row)))
    return read_attacks(path)


def _note(row: Attack) -> str:
    if row.distance is None:
        return f"image {row.idx}: nothing found"
    return f"image {row.idx}: class {row.adversarial} at distance {row.distance:.3f}"
