"""`Smoothed` on anyone's network, and its guards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm

import smoothmix as sm
from smoothmix.errors import UsageError
from smoothmix.noise import GridNoise
from tests.conftest import Linear, small_convnet

IMAGES = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(2))


def smoothed(**settings: object) -> sm.Smoothed:
    chosen = {"sigma": 0.5, "num_classes": 10, "noise": "gaussian", **settings}
    return sm.Smoothed(small_convnet(), **chosen)  # type: ignore[arg-type]


def test_five_lines_certify_a_network() -> None:
    model = small_convnet()
    classifier = sm.Smoothed(model, sigma=0.5, num_classes=10, noise="gaussian")
    certified = classifier.certify(IMAGES, n0=50, n=500, alpha=0.001, seed=0)
    assert certified.prediction.shape == certified.radius.shape == certified.p_lower.shape == (4,)
    assert certified.counts.shape == certified.selection_counts.shape == (4, 10)
    assert (certified.counts.sum(1) == 500).all()
    assert (certified.selection_counts.sum(1) == 50).all()
    assert ((certified.prediction == -1) == (certified.radius == 0)).all()
    answers = classifier.predict(IMAGES, n=500, alpha=0.001)
    assert (
        (answers == certified.prediction) | (certified.prediction == -1) | (answers == -1)
    ).all()


def test_the_radius_of_a_linear_classifier_is_its_distance_to_the_boundary_at_most() -> None:
    """Smoothing leaves a linear rule as it is, and its true radius is known exactly."""
    model = Linear(pixels=9)
    images = torch.rand(50, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    direction = (model.weight[1] - model.weight[0]).detach()
    distance = (images.flatten(1) @ direction).abs() / direction.norm()
    certified = sm.Smoothed(model, sigma=0.25, num_classes=2, noise="gaussian").certify(
        images, n0=20, n=20_000, alpha=0.001, seed=1
    )
    sure = certified.prediction >= 0
    assert sure.float().mean() > 0.9
    assert (certified.prediction[sure] == model(images).argmax(1)[sure]).all()
    assert (certified.radius <= distance + 1e-6).all()
    reachable = torch.minimum(
        distance.double(), torch.tensor(0.25 * norm.ppf(0.001 ** (1 / 20_000)))
    )
    assert (reachable - certified.radius).median() < 0.02, "and it is nearly that far"


def test_the_same_seed_gives_the_same_votes_and_none_gives_fresh_ones() -> None:
    one, two = (smoothed().certify(IMAGES, n0=20, n=200, seed=3) for _ in range(2))
    assert torch.equal(one.counts, two.counts)
    assert (one.seed, two.seed) == (3, 3)
    fresh = smoothed().certify(IMAGES, n0=20, n=200)
    again = smoothed().certify(IMAGES, n0=20, n=200, seed=fresh.seed)
    assert torch.equal(fresh.counts, again.counts), "the seed it reports brings the votes back"
    assert smoothed().certify(IMAGES, n0=20, n=200).seed != fresh.seed


def test_numbers_of_numpy_are_taken_as_they_are() -> None:
    classifier = smoothed(sigma=np.float32(0.25), batch=np.int64(64))
    certified = classifier.certify(IMAGES, n0=np.int64(20), n=np.int64(200), seed=np.int64(3))  # type: ignore[arg-type]
    plain = smoothed(sigma=0.25, batch=64).certify(IMAGES, n0=20, n=200, seed=3)
    assert torch.equal(certified.counts, plain.counts)
    assert type(certified.seed) is int
    assert GridNoise().clip(np.float32(0.5)) == 3  # type: ignore[arg-type]


def test_an_image_gets_the_same_votes_in_any_batch() -> None:
    together = smoothed().certify(IMAGES, n0=20, n=200, seed=0)
    backwards = smoothed().certify(IMAGES.flip(0), n0=20, n=200, seed=0, index=[3, 2, 1, 0])
    alone = smoothed().certify(IMAGES[2:3], n0=20, n=200, seed=0, index=[2])
    assert torch.equal(together.counts, backwards.counts.flip(0))
    assert torch.equal(together.counts[2:3], alone.counts)


def test_the_network_is_left_as_it_was() -> None:
    model = small_convnet().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sm.Smoothed(model, sigma=0.5, num_classes=10, noise="gaussian").certify(IMAGES, n0=20, n=200)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(
        parameter.grad is None and parameter.requires_grad for parameter in model.parameters()
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sigma": 0.0}, "sigma must be a positive number"),
        ({"sigma": float("nan")}, "sigma"),
        ({"num_classes": 1}, "num_classes"),
        ({"batch": 0}, "batch"),
        ({"precision": "fp16"}, "precision must be one of fp32, bf16"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(
    settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        smoothed(**settings)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"n0": 0}, "n0 must be at least 1"),
        ({"n": 0}, "n must be at least 1"),
        ({"n": 5}, "can never certify anything: it takes n=10"),
        ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1"),
        ({"seed": -1}, "seed"),
        ({"index": [0]}, "index numbers 1 images, but there are 4"),
        ({"index": [0, 1, 2, -3]}, "zero or more"),
        ({"index": [0, 1, 2, 2**70]}, "less than 2"),
        ({"index": [0.2, 0.7, 1.5, 2.5]}, "index must hold whole numbers, got"),
        (
            {"n": 1000, "stopping": sm.Stopping(tolerance=0.05)},
            "at most max_draws, which is 100,000 there: leave out n",
        ),
        ({"stopping": sm.Stopping(radii=(0.1,), max_draws=5)}, "can never certify anything"),
        (
            {"stopping": sm.Stopping(max_draws=10)},
            "10 draws can never certify anything in mode anytime",
        ),
    ],
)
def test_requests_that_cannot_be_are_refused(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        smoothed().certify(IMAGES, **asked)  # type: ignore[arg-type]


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(UsageError, match=r"images must be a torch tensor .*, got ndarray"):
        smoothed().certify(IMAGES.numpy())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"images must be a torch tensor .*, got int"):
        smoothed().certify(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"images must be a batch \[B, ...\], got \[\]"):
        smoothed().certify(torch.tensor(0.5))


def test_images_outside_the_range_are_refused_unless_asked_for() -> None:
    with pytest.raises(UsageError, match="normalised"):
        smoothed().certify(torch.randn(2, 1, 28, 28))
    with pytest.warns(UserWarning, match="normalised already"):
        smoothed(any_range=True).certify(torch.randn(2, 1, 28, 28), n0=10, n=20)


def test_a_very_large_sigma_is_doubted() -> None:
    with pytest.warns(UserWarning, match="0 to 255"):
        smoothed(sigma=64.0).predict(IMAGES, n=20)


def test_predictions_take_whole_numbers_of_draws_and_a_tensor_may_number_the_images() -> None:
    with pytest.raises(UsageError, match=r"n must be a whole number, got 1000.0"):
        smoothed().predict(IMAGES, n=1e3)  # type: ignore[arg-type]
    by_list, by_tensor = (
        smoothed().votes(IMAGES, n=20, seed=0, index=i)
        for i in ([3, 5, 7, 9], torch.arange(3, 10, 2))
    )
    assert torch.equal(by_list, by_tensor)


def test_images_that_want_a_gradient_are_certified_without_a_word(
    recwarn: pytest.WarningsRecorder,
) -> None:
    wanting = IMAGES.clone().requires_grad_()
    assert torch.equal(
        smoothed().votes(wanting, n=20, seed=0), smoothed().votes(IMAGES, n=20, seed=0)
    )
    assert [str(each.message) for each in recwarn] == []


class Unreadable(torch.Tensor):
    """Someone's own tensor, which fails where its pixels are read."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.Tensor.aminmax:
            raise KeyError("no pixels")
        return super().__torch_function__(func, types, args, kwargs or {})


PIXELS = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))

OTHER_TENSORS = {
    "sparse": (PIXELS.to_sparse(), r"got the layout torch.sparse_coo: call to_dense\(\)"),
    "complex": (PIXELS.to(torch.complex64), "got torch.complex64: take their real part"),
    "meta": (PIXELS.to("meta"), "device meta have no pixels"),
    "float8": (PIXELS.to(torch.float8_e4m3fn), "give a torch.Tensor of float32"),
    "subclass": (PIXELS.as_subclass(Unreadable), r"this Unreadable of .*\(KeyError\)"),
}


@pytest.mark.parametrize("kind", OTHER_TENSORS)
def test_tensors_that_hold_no_plain_pixels_are_refused_in_a_sentence(kind: str) -> None:
    images, sentence = OTHER_TENSORS[kind]
    smoothed = sm.Smoothed(Linear(16), sigma=0.5, num_classes=2, noise="gaussian")
    for ask in (smoothed.certify, smoothed.predict, smoothed.votes):
        with pytest.raises(UsageError, match=sentence):
            ask(images, n=100)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantised_nested_and_compressed_tensors_are_refused_in_a_sentence() -> None:
    quantised = torch.quantize_per_tensor(PIXELS, 0.01, 0, torch.quint8)
    smoothed = sm.Smoothed(Linear(16), sigma=0.5, num_classes=2, noise="gaussian")
    with pytest.raises(UsageError, match=r"got torch.quint8: call dequantize\(\)"):
        smoothed.votes(quantised, n=100)
    with pytest.raises(UsageError, match="got the layout"):
        smoothed.votes(PIXELS.flatten(1).to_sparse_csr(), n=100)
    with pytest.raises(UsageError, match="stack images of one shape"):
        smoothed.votes(torch.nested.nested_tensor([PIXELS[0], PIXELS[1]]), n=100)


def test_other_views_of_plain_pixels_get_the_same_votes() -> None:
    smoothed = sm.Smoothed(Linear(16), sigma=0.5, num_classes=2, noise="gaussian")
    expected = smoothed.votes(PIXELS, n=100, seed=1).tolist()
    views = {
        "with gradients": PIXELS.clone().requires_grad_(),
        "not contiguous": PIXELS.transpose(2, 3).contiguous().transpose(2, 3),
        "negated": torch.complex(PIXELS, -PIXELS).conj().imag,
        "in float64": PIXELS.double(),
        "a subclass": PIXELS.as_subclass(type("Own", (torch.Tensor,), {})),
        "a parameter": torch.nn.Parameter(PIXELS),
    }
    for name, images in views.items():
        assert smoothed.votes(images, n=100, seed=1).tolist() == expected, name
