"""Networks prepared to run on many noise samples of images of one shape.

A prepared network has a copy for each thread. Where that gives the same logits, it also has its
channels last in memory and its convolutions fused, which is faster. Probe images decide whether
the logits are the same: no inspection of the code could.
"""

from __future__ import annotations

import math
import platform
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from smoothmix.certificates.probes import RANDOM, probe_text
from smoothmix.config import EngineName, Precision, require
from smoothmix.errors import UsageError
from smoothmix.inference.copies import OneAtATime, copy_sharing_weights, for_threads
from smoothmix.inference.engines import ENGINES, Engine, UnfitError, WrittenNetwork
from smoothmix.inference.prepared import PreparedNetwork
from smoothmix.models.outside import OutsideModule, outside_parts
from smoothmix.networks.modes import device_of

LARGEST_INPUT = 2**20
"""Numbers of input to one forward on a CPU; more could fill the memory for large images."""

SMALLEST_MICROBATCH = 8

PROBE_IMAGES = 8
"""Images whose logits are compared and recorded."""

LABEL_PROBE_IMAGES = 64
"""The same for classifiers that give labels, which show less than logits do."""

COARSE = 4
"""Rows and columns of the patterns on probe images for labels."""

CLOSE = 1e-3
"""Relative difference of logits that rounding explains on a processor in float32."""

CLOSE_ELSEWHERE = 0.03
"""The same on a GPU or in bf16, whose kernels for other batch sizes differ in the third digit."""

OWN_DTYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64}
"""Types of weights that a network is run in."""

PRECISE = {torch.float32, torch.float64}

RANDOM_WARNING = (
    "the network gives other logits each time for the same images (for example, it uses dropout "
    "outside of training mode): its votes cannot be reproduced from the seed, and the guarantee "
    "holds only if its random numbers are independent of the noise"
)


def prepare_network(
    model: nn.Module,
    shape: Sequence[int],
    *,
    batch: int,
    precision: Precision = "fp32",
    engine: EngineName = "auto",
) -> PreparedNetwork:
    """The network in eval mode, ready for images of one shape and for many threads.

    The model itself is not changed. `engine="eager"` runs it as it was written.
    """
    device = device_of(model)
    on_cpu = device.type == "cpu"
    outside = list(outside_parts(model))
    dtype = own_dtype(model)
    require(
        precision == "fp32" or dtype == torch.float32,
        f"the network has weights in {_dtype_name(dtype)} and runs in them: leave out precision "
        f"{precision}, which is for networks in float32",
    )
    base = copy_sharing_weights(model)
    plain = PreparedNetwork(
        engine=_engine_of(outside, engine_on(device, precision, dtype)),
        network=_as_written(model, base, on_cpu=on_cpu),
        device=device,
        dtype=dtype,
        precision=precision,
        # A function gets whole batches: only its author knows what fits into its memory.
        microbatch=microbatch_size(shape, batch) if on_cpu and not outside else batch,
        gives_labels=any(part.gives_labels for part in outside),
    )

    probe = probe_images_for(plain, shape)
    expected = probe_logits(plain, probe)
    if expected is None:
        # The first real forward reports what is wrong with the network.
        return plain
    again = probe_logits(plain, probe)
    if not close_logits(again, expected):
        # Attributed to this line: Python shows it once, however many callers prepare the network.
        warnings.warn(RANDOM_WARNING, stacklevel=1)
        require(
            engine in ("auto", "eager"),
            f"the engine {engine} cannot run a network that draws random numbers: leave --engine "
            "out",
        )
        return replace(plain, probe=RANDOM)
    in_fp32 = replace(plain, precision="fp32")
    require_independent_images(in_fp32, probe, expected, again=again)
    computed_on = ", ".join([processor_of(device), *filter(None, [p.software for p in outside])])
    plain = replace(plain, probe=_probe_of(expected, computed_on=computed_on))
    is_for_engines = not outside and dtype == torch.float32
    if base is None or not is_for_engines or not on_cpu:
        _require_no_other_engine(engine, plain)
        return plain
    written = WrittenNetwork(base=base, plain=plain, images=probe)
    if engine in ("auto", "eager"):
        return _usual(written, expected, fuse=engine == "auto")
    return _named(engine, written, expected, computed_on=computed_on)


def _usual(written: WrittenNetwork, expected: Tensor, *, fuse: bool) -> PreparedNetwork:
    """The network as torch runs it fastest without preparations that take time."""
    for name in ("fused", "eager") if fuse else ("eager",):
        # For other input than images, neither would be faster.
        if written.images.dim() != 4:
            break
        with suppress(UnfitError):
            return _accepted(ENGINES[name], written, expected)
    return written.plain


def _named(
    engine: EngineName, written: WrittenNetwork, expected: Tensor, *, computed_on: str
) -> PreparedNetwork:
    """The network as the engine of a name runs it."""
    chosen = ENGINES[engine]
    chosen.require_installed()
    try:
        prepared = _accepted(chosen, written, expected)
    except UnfitError as error:
        raise UsageError(
            f"the engine {engine} cannot run this network: {error}; choose another --engine"
        ) from error
    if not chosen.software:
        return prepared
    # Another version of that library may round otherwise, as another torch may.
    return replace(
        prepared,
        probe=_probe_of(expected, computed_on=f"{computed_on}, {chosen.software}"),
    )


def _accepted(engine: Engine, written: WrittenNetwork, expected: Tensor) -> PreparedNetwork:
    """The network as an engine runs it, if its logits are those of the network as written."""
    precision = written.plain.precision
    if precision not in engine.precisions:
        raise UnfitError(f"it computes in {', '.join(engine.precisions)} only")
    # In fp32, ways to run a network differ by rounding alone.
    in_fp32 = engine.build(written, "fp32")
    if not close_logits(logits_of(in_fp32, written.images), expected):
        raise UnfitError("its logits on the probe images are others")
    # Earlier versions compared the network as written in fp32 alone, and what they recorded holds.
    if engine.name == "eager":
        return replace(in_fp32, precision=precision)
    prepared = in_fp32
    if precision != "fp32":
        prepared = engine.build(written, precision)
    _require_sound(prepared, written, expected)
    return prepared


def _require_sound(prepared: PreparedNetwork, written: WrittenNetwork, expected: Tensor) -> None:
    """Refuse an engine whose logits are wrong in its own precision, or not repeated."""
    found = logits_of(prepared, written.images)
    tolerance = tolerance_on(prepared)
    if prepared.precision != "fp32":
        # In deep networks, rounding grows: twice what it does in the network as written.
        own = logits_of(written.plain, written.images)
        tolerance = max(tolerance, 2 * _deviation(own, expected))
    if found is None or not close_logits(found.float(), expected, tolerance=tolerance):
        raise UnfitError(f"its logits on the probe images in {prepared.precision} are others")
    again = logits_of(prepared, written.images)
    if again is None or not torch.equal(again, found):
        raise UnfitError("its logits are others each time")
    if not _ignores_other_images(prepared, written.images, found, again=again):
        raise UnfitError("its logits for an image depend on the others in its batch")


def _deviation(found: Tensor | None, expected: Tensor) -> float:
    """The largest difference of logits, relative to the largest logit; 0 if there are none."""
    if found is None or found.shape != expected.shape:
        return 0.0
    largest = max(1e-6, float(expected.abs().max()))
    return float((found.float() - expected).abs().max()) / largest


def _require_no_other_engine(engine: EngineName, plain: PreparedNetwork) -> None:
    """Refuse engines that are for other networks than this one."""
    require(
        engine in ("auto", "eager"),
        f"the engine {engine} runs networks of torch in float32 on a processor, and this one is "
        f"run by {plain.engine}: leave --engine out",
    )


def _as_written(
    model: nn.Module, base: nn.Module | None, *, on_cpu: bool
) -> Callable[[Tensor], Tensor]:
    """The network without any change that could make it faster."""
    if base is None:
        return OneAtATime(model)
    if on_cpu:
        return for_threads(base)
    return OneAtATime(base)


def _probe_of(logits: Tensor, *, computed_on: str) -> str:
    return probe_text(logits.cpu().float().numpy(), computed_on=computed_on)


def own_dtype(model: nn.Module) -> torch.dtype:
    """The type of a network's weights; float32 where they have several types, or none.

    >>> own_dtype(nn.Linear(2, 2).half())
    torch.float16
    """
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    if len(dtypes) == 1 and dtypes <= OWN_DTYPES:
        return dtypes.pop()
    return torch.float32


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def engine_on(
    device: torch.device, precision: Precision, dtype: torch.dtype = torch.float32
) -> str:
    """The name of torch's own arithmetic on a device, for weights of a type.

    >>> engine_on(torch.device("cpu"), "fp32")
    'torch-cpu'
    >>> engine_on(torch.device("cpu"), "fp32", torch.float16)
    'torch-cpu-float16'
    """
    if dtype != torch.float32:
        return f"torch-{device.type}-{_dtype_name(dtype)}"
    # What torch calls fp32 on a GPU may compute products with ten bits.
    tf32 = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    if device.type == "cuda" and precision == "fp32" and tf32:
        return "torch-cuda-tf32"
    return f"torch-{device.type}"


def _engine_of(outside: Sequence[OutsideModule], torch_engine: str) -> str:
    """The name of what computes the logits of a network, of which these parts leave torch."""
    if outside:
        return outside[-1].engine
    return torch_engine


def engine_name(
    model: nn.Module, shape: Sequence[int], *, precision: Precision, engine: EngineName = "auto"
) -> str:
    """The name of what would run this network on images of that shape."""
    return prepare_network(model, shape, batch=1, precision=precision, engine=engine).engine


def microbatch_size(shape: Sequence[int], batch: int) -> int:
    """Images in one forward on a CPU: a power of two, or the whole batch where that is less.

    >>> microbatch_size((1, 28, 28), 256), microbatch_size((3, 224, 224), 256)
    (256, 8)
    """
    fitting = max(SMALLEST_MICROBATCH, LARGEST_INPUT // max(1, math.prod(shape)))
    power_of_two: int = 2 ** (fitting.bit_length() - 1)
    return min(batch, power_of_two)


def probe_images(shape: Sequence[int]) -> Tensor:
    """Noisy images, the same for every call, without use of torch's global generator."""
    generator = torch.Generator().manual_seed(0)
    pairs = []
    # Two by two: the first two are those of earlier versions, which recorded their logits.
    for _ in range(PROBE_IMAGES // 2):
        images = torch.rand((2, *shape), generator=generator)
        pairs.append(images + torch.randn((2, *shape), generator=generator))
    return torch.cat(pairs)


def probe_images_for(prepared: PreparedNetwork, shape: Sequence[int]) -> Tensor:
    """The probe images of a network; more of them, and with patterns, where it gives labels."""
    if not prepared.gives_labels or len(shape) != 3:
        return probe_images(shape)
    # Plain noise might get the same label everywhere; bright and dark areas rarely do.
    generator = torch.Generator().manual_seed(3)
    coarse = torch.rand((LABEL_PROBE_IMAGES, shape[0], COARSE, COARSE), generator=generator)
    patterns = nn.functional.interpolate(coarse, size=tuple(shape[1:]))
    return patterns + 0.25 * torch.randn(patterns.shape, generator=generator)


def probe_logits(prepared: PreparedNetwork, images: Tensor) -> Tensor | None:
    """The logits in fp32; None if the network fails, or gives something else."""
    # In fp32, ways to run a network differ by rounding alone.
    return logits_of(replace(prepared, precision="fp32"), images)


def logits_of(prepared: PreparedNetwork, images: Tensor) -> Tensor | None:
    """The logits in the network's own precision; None if it fails, or gives something else."""
    try:
        # A copy, as the network may write into it.
        logits = prepared(images.clone())
    except Exception:  # noqa: BLE001 - networks are anyone's code
        return None
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        return None
    if not bool(logits.isfinite().all()):
        return None
    return logits


def processor_of(device: torch.device) -> str:
    """The processor and the version of torch: where both are the same, so is all rounding."""
    if device.type == "cuda":  # pragma: no cover
        name = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        name = f"{_cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"
    else:  # pragma: no cover
        name = device.type
    return f"{name}, torch {torch.__version__}"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, UnicodeError):  # pragma: no cover
        pass
    return platform.processor() or platform.machine()


def tolerance_on(prepared: PreparedNetwork) -> float:
    """Relative difference of logits that rounding explains where the network runs."""
    precise = prepared.precision == "fp32" and prepared.dtype in PRECISE
    if prepared.device.type == "cpu" and precise:
        return CLOSE
    return CLOSE_ELSEWHERE


def close_logits(found: Tensor | None, expected: Tensor, *, tolerance: float = CLOSE) -> bool:
    """Whether logits are the expected ones but for rounding."""
    if found is None or found.shape != expected.shape:
        return False
    largest = max(1e-6, float(expected.abs().max()))
    return torch.allclose(expected, found, rtol=tolerance, atol=tolerance * largest)


def require_independent_images(
    prepared: PreparedNetwork, images: Tensor, expected: Tensor, *, again: Tensor | None
) -> None:
    """Refuse a network whose logits for an image depend on the other images in its batch.

    About half of them are replaced, and the logits of the rest must keep their bits: no kernel
    rounds a number differently for the values beside it. Rounding is allowed for only where the
    network does not repeat its bits for the same batch; `again` holds its second logits.
    """
    if not _ignores_other_images(prepared, images, expected, again=again):
        raise UsageError(
            "the network's answer for an image depends on the others in its batch, as if it "
            "computed statistics of the batch: such a network cannot be certified"
        )


def _ignores_other_images(
    prepared: PreparedNetwork, images: Tensor, expected: Tensor, *, again: Tensor | None
) -> bool:
    """Whether the logits of images stay as they are when others of their batch are replaced."""
    if expected.dim() != 2 or len(expected) != len(images):
        # The first real forward reports what is wrong with the network.
        return True
    tolerance = 0.0
    if again is None or not torch.equal(again, expected):
        tolerance = tolerance_on(prepared)
    mixed = images.clone()
    kept = _kept_beside_others(len(images))
    mixed[~kept] = _unlike(images[~kept])
    found = logits_of(prepared, mixed)
    if found is None or found.shape != expected.shape:
        return True
    rows = kept.to(expected.device)
    return close_logits(found[rows], expected[rows], tolerance=tolerance)


def _kept_beside_others(count: int) -> Tensor:
    """Which images of a batch stay when others are replaced, in a pattern without a period."""
    kept = torch.rand(count, generator=torch.Generator().manual_seed(2)) < 0.5
    # A batch of two has one image of each kind.
    kept[0] = True
    kept[1:2] = False
    return kept


def _unlike(images: Tensor) -> Tensor:
    """Other images, with another mean, contrast and largest value than these."""
    return 1 - 3 * images.flip(-1)
