"""Options that several commands share. Each is explained once, here."""

# Without `from __future__ import annotations`: cyclopts evaluates the annotations of inherited
# options in the module of the subclass, where their names would not be known.
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from smoothmix.config import EngineName, Precision, Preparation, requested_preparation, require
from smoothmix.errors import UsageError

# The help of commands with many options shows them in these groups, one after another.
NETWORK_GROUP = Group("Network", sort_key=1)
IMAGES_GROUP = Group("Images", sort_key=2)
NOISE_GROUP = Group("Noise", sort_key=3)
GUARANTEE_GROUP = Group("Guarantee", sort_key=4)
ANYTIME_GROUP = Group("Stopping early (--mode anytime)", sort_key=5)
OUTPUT_GROUP = Group("Output", sort_key=6)
RUN_GROUP = Group("What is trained", sort_key=1)
EXECUTION_GROUP = Group("How it is executed", sort_key=2)

USUAL_GROUP = Group.create_default_parameters()
"""For classes of options whose bases have other groups."""

IN_IMAGES = Parameter(group=IMAGES_GROUP)
IN_NOISE = Parameter(group=NOISE_GROUP)
IN_GUARANTEE = Parameter(group=GUARANTEE_GROUP)
IN_OUTPUT = Parameter(group=OUTPUT_GROUP)
IN_RUN = Parameter(group=RUN_GROUP)
IN_EXECUTION = Parameter(group=EXECUTION_GROUP)

FLAT = Parameter(name="*", negative="")
"""Makes each field of a dataclass of the library an option of the command."""

Flag = Annotated[bool, Parameter(negative="")]
"""An option without a value, and without a --no- form."""

Numbers = Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)]
"""Several numbers, with commas or blanks between them: 0.25,0.5 or 0.25 0.5."""

Texts = Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)]
"""Several texts, with blanks between them."""

Maximum = Annotated[int | None, Parameter(name="--max")]


def parse_numbers(texts: Sequence[str] | None) -> tuple[float, ...]:
    """The numbers in the values of an option.

    >>> parse_numbers(["0.25,0.5", "1"])
    (0.25, 0.5, 1.0)
    """
    # Both 0.25,0.5 and 0.25 0.5 are natural; the shell makes one or two values of them.
    joined = ",".join(texts or ())
    try:
        return tuple(float(text) for text in joined.split(",") if text.strip())
    except ValueError:
        shown = " ".join(texts or ())
        raise UsageError(f"numbers are written like 0.25,0.5, got {shown!r}") from None


def parse_radii(texts: Sequence[str] | None) -> tuple[float, ...]:
    """The radii in the values of an option."""
    radii = parse_numbers(texts)
    # float() also accepts nan and inf.
    possible = all(math.isfinite(radius) and radius >= 0 for radius in radii)
    require(possible, f"radii must be zero or more, got {texts}")
    return radii


# `name="*"` makes the fields of these classes options of the command, without a prefix. A class
# with a single option exists so that the option is explained once, and others inherit it.


@Parameter(name="*", group=NETWORK_GROUP)
@dataclass(frozen=True, kw_only=True)
class DeviceOption:
    """Where networks run."""

    # None and not "auto": a command can then tell whether the option was given.
    device: str | None = None
    """cpu, cuda, cuda:1, ...; by default (or with auto) a GPU if there is one."""


@Parameter(name="*", group=IMAGES_GROUP)
@dataclass(frozen=True, kw_only=True)
class DataFolder:
    """Where data sets are stored."""

    data_dir: Path | None = None
    """Folder that holds the data sets; by default $SMOOTHMIX_DATA or this user's cache."""


@Parameter(name="*", group=IMAGES_GROUP)
@dataclass(frozen=True, kw_only=True)
class DataOptions(DataFolder):
    """Which data set."""

    data: str | None = None
    """Data set (`smoothmix data list`); by default that of the training."""

    split: str = "test"
    """Split of the data set."""


@Parameter(name="*", group=IMAGES_GROUP)
@dataclass(frozen=True, kw_only=True)
class PreparationOptions:
    """How image files of any size become images of one size."""

    resize: int | None = None
    """Scale image files of your own to so many pixels on the short side. Runs record this and
    the next two options, and are used without them."""

    crop: int | None = None
    """Crop the middle of image files to a square of so many pixels, after --resize."""

    channels: int | None = None
    """Read image files as grey (1) or colour (3); by default colour if any has it."""

    @property
    def preparation(self) -> Preparation | None:
        """How images are prepared, if it says so."""
        return requested_preparation(resize=self.resize, crop=self.crop, channels=self.channels)


@Parameter(name="*", group=IMAGES_GROUP)
@dataclass(frozen=True, kw_only=True)
class ImageOptions(PreparationOptions, DataOptions):
    """Which images."""

    skip: int = 1
    """Take every skip-th image: 0, skip, 2 skip, ..."""

    maximum: Maximum = None
    """Stop after this many images."""

    photos: Annotated[
        list[str] | None, Parameter(name="--images", negative="", consume_multiple=True)
    ] = None
    """Images without labels instead of a data set: files, patterns, folders, or a .txt file with a
    path in each line. They are scaled and cropped as the network's training images."""

    classes: Texts = None
    """The network's names for classes that the data set names otherwise, such as
    --classes cats=cat,dogs=dog."""

    def __post_init__(self) -> None:
        require(self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        alone = self.data is None and self.classes is None
        require(not self.photos or alone, "--images takes the place of --data and --classes")
        possible = self.maximum is None or self.maximum >= 1
        require(possible, f"max must be at least 1, got {self.maximum}")


@Parameter(name="*", group=NETWORK_GROUP)
@dataclass(frozen=True, kw_only=True)
class BatchOption:
    """How many noise samples run through the network at once."""

    batch: int = 256
    """Noise samples in one forward pass. Rounding may depend on it; certificates record it."""

    def __post_init__(self) -> None:
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")


@Parameter(name="*", group=NETWORK_GROUP)
@dataclass(frozen=True, kw_only=True)
class NetworkSource(DeviceOption):
    """Your own network, and where it runs."""

    model: str | None = None
    """Your own network instead of a run: `package.module:function`, called without arguments
    (modules in the current folder are found, after all installed ones); `hf:NAME` or `hf:FOLDER`
    (transformers); `timm:NAME`; an .onnx file; a TorchScript file (.pt) or an archive of
    torch.export (.pt2), both with --allow-code."""

    weights: Path | None = None
    """Weights for --model: .safetensors, or .pt, which is read without running code from it."""

    output: str | None = None
    """Where the logits are in what --model returns: a key or attribute such as logits, or a
    position such as 0."""

    normalisation: str | None = None
    """What is put before --model: the mean and standard deviation of each channel, such as
    0.5,0.5,0.5/0.25,0.25,0.25, or the name of a data set."""

    layout: Literal["nchw", "nhwc"] = "nchw"
    """Where an .onnx file has its channels: before height and width, or after them."""

    allow_code: Flag = False
    """Load a TorchScript file or an archive of torch.export, which runs code of its author."""

    revision: str | None = None
    """Revision of a model on the Hugging Face hub: a branch, a tag or a commit."""


@Parameter(name="*", group=NETWORK_GROUP)
@dataclass(frozen=True, kw_only=True)
class ModelOptions(BatchOption, NetworkSource):
    """Which network, and where it runs."""

    # None and not "grid": an existing file keeps the noise that it was started with.
    noise: Annotated[str | None, IN_NOISE] = None
    """Distribution of the noise. grid (for 8-bit images) and gaussian (for any) certify L2 radii;
    those of grid are exact, those of gaussian hold up to rounding in floating point. uniform and
    laplace certify L1 radii. Your own is named by package.module:Class. By default grid, or that
    of the file that is resumed."""

    levels: Annotated[int | None, IN_NOISE] = None
    """Steps between black and white for --noise grid: 255 for 8-bit images, 65535 for 16-bit
    ones; by default those of the data set."""

    num_classes: int | None = None
    """Outputs of the network, if the data set has another number of classes or none is given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.levels is None or self.noise in (None, "grid"),
            f"--levels goes with --noise grid, not with {self.noise}",
        )
        classes = self.num_classes
        require(classes is None or classes >= 2, f"num-classes must be at least 2, got {classes}")


@Parameter(name="*", group=NETWORK_GROUP)
@dataclass(frozen=True, kw_only=True)
class NetworkOptions(ModelOptions):
    """Which network, and how it runs."""

    sigma: Annotated[float | None, IN_NOISE] = None
    """Standard deviation of the noise for pixels in [0, 1]; by default that of the training."""

    precision: Precision = "fp32"
    """Arithmetic of the network: certify what will be deployed."""

    engine: EngineName = "auto"
    """What runs the network on a CPU: eager runs it as it is written, fused fuses its layers,
    compiled generates code for it (which takes a minute), openvino and onnxruntime are libraries
    that extras of these names install. auto fuses layers where that gives the same logits; for long
    jobs it measures once whether an installed engine is faster. Rounding may depend on the engine;
    certificates record it, and are resumed with it."""


@Parameter(name="*", group=NOISE_GROUP)
@dataclass(frozen=True, kw_only=True)
class SeedOptions:
    """What decides the noise of certificates."""

    seed: int | Literal["secret"] | None = None
    """Decides the noise. By default 0, which is public: anyone can draw the votes again, but could
    also have prepared inputs or weights for it. secret draws 256 bits from the system's entropy
    into a file of their own, and records a commitment to them. If you chose the model by its
    certificates, certify again with another seed and --out."""

    seed_from: str | None = None
    """Derive a public seed from this text (SHA-256), such as a public value that was not known
    when the model was fixed; the text is recorded."""

    seed_file: Path | None = None
    """The file of the secret seed; by default something.secret-seed beside something.tsv. It is
    made if there are no certificates yet, and needed to resume, extend or redraw them."""

    def __post_init__(self) -> None:
        require(
            self.seed is None or self.seed_from is None,
            "--seed-from derives the seed: leave --seed out",
        )
        require(
            self.seed_file is None or self.seed == "secret",
            "--seed-file goes with --seed secret",
        )


@Parameter(name="*", group=ANYTIME_GROUP)
@dataclass(frozen=True, kw_only=True)
class AnytimeOptions:
    """When an image has enough draws; all of these need --mode anytime."""

    radii: Numbers = None
    """Stop once each of these radii is certified or out of reach, such as --radii 0.25,0.5,1."""

    tolerance: float | None = None
    """Stop once more draws could raise the certified radius by no more than this."""

    min_gain: float | None = None
    """Stop once 1,000 further draws are expected to raise the certified radius by less than this,
    such as 0.01: for the average certified radius."""

    budget: int | None = None
    """Draws for all images together, such as 20000000: they take turns by expected gain, and those
    left without draws get radius 0. Rows are written at the end."""

    hours: float | None = None
    """Time for the draws of all images together, in place of --budget or with it; how far it goes
    is not reproducible."""

    goal: Literal["accuracy", "acr"] | None = None
    """What the budget is for: accuracy, at --radii, or acr, the average certified radius; by
    default accuracy if --radii are given."""

    max_draws: int | None = None
    """Draws after which an image is stopped early, rounded up to whole batches; by default --n."""

    foresight: float | None = None
    """Stop once the chance that the draws left reach the next of --radii, or raise the radius by
    --tolerance, is below this, given the votes so far; 0 switches it off; by default 0.02, or as in
    a file that is resumed."""

    seconds: float | None = None
    """Time for the whole command. The same command resumes the active images, with their draws."""

    seconds_per_image: float | None = None
    """Time after which an image is stopped early."""

    extend: Flag = False
    """Draw more for the images of an existing anytime file, by the rules of this command."""


@Parameter(name="*", group=USUAL_GROUP)
@dataclass(frozen=True, kw_only=True)
class RedrawOptions(NetworkSource, DataFolder):
    """Which rows of a certificate file are drawn again, and by which network."""

    redraw: int | None = None
    """Draw the votes of this many rows again, chosen at random, and compare them. The network is
    that of the run folder named after the file, or --model; all else is as the file records it."""

    redraw_seed: int | None = None
    """Choose the same rows again; by default nobody can know the choice in advance."""

    data: str | None = None
    """Data set of the certificates, if it is your own or has moved; labels are compared with it,
    and --redraw draws for its images. By default the one on record."""

    def __post_init__(self) -> None:
        possible = self.redraw is None or self.redraw >= 1
        require(possible, f"redraw must be at least 1, got {self.redraw}")
        given = (
            *(self.redraw_seed, self.model, self.weights, self.device),
            *(self.output, self.normalisation, self.revision),
        )
        require(
            self.redraw is not None or not any(value is not None for value in given),
            "options for the network and --redraw-seed go with --redraw",
        )


@Parameter(name="*", group=USUAL_GROUP)
@dataclass(frozen=True, kw_only=True)
class PresetRunOptions(DataFolder, DeviceOption):
    """How runs of the paper's presets are certified. All are None or False unless given."""

    skip: int | None = None
    """Certify every skip-th test image; by default as in the paper: every 100th of ImageNet, and
    all of the others."""

    maximum: Maximum = None
    """Certify at most this many images."""

    n: int | None = None
    """Draws per image; by default 100,000."""

    skip_wrong: Flag = False
    """Spend no further draws on an image whose selected class is wrong."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyFiles:
    """Where the files of a study go."""

    out: Path = Path("studies")
    """Folder for the files."""

    format: Literal["pdf", "png", "svg"] = "pdf"
    """Format of the figure (needs `pip install matplotlib`)."""
