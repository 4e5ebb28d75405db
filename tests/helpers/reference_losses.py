"""Every method's loss again, slow and obvious: loops over images and noise samples.

They follow the equations and the fidelity notes, and call nothing of the package. Networks are run
on whole batches only where BatchNorm needs it; attacks go image by image through a copy of the
network in eval mode.
"""

import copy
import math

import torch


def softmax(logits):
    powers = (logits - logits.max()).exp()
    return powers / powers.sum()


def log_probability(logits, label):
    return logits[label] - logits.logsumexp(0)


def noisy_forward(model, x, noise):
    """logits[i][b] of image b with its noise i, from one forward."""
    images = [x[b] + noise[i][b] for i in range(len(noise)) for b in range(len(x))]
    logits = model(torch.stack(images))
    return [[logits[i * len(x) + b] for b in range(len(x))] for i in range(len(noise))]


def mean_prediction(logits, b):
    """F^ of image b."""
    return sum(softmax(copy_logits[b]) for copy_logits in logits) / len(logits)


def mean_cross_entropy(logits, y):
    terms = [-log_probability(row[b], y[b]) for row in logits for b in range(len(y))]
    return sum(terms) / len(terms)


def frozen(model):
    return copy.deepcopy(model).eval().requires_grad_(False)


def attack_gradient(network, z, label, noises, floor):
    """Gradient at z of -log(max(mean_i softmax F(z + d_i)_y, floor)), and the mean prediction."""
    z = z.detach().clone().requires_grad_(True)
    mean = sum(softmax(network((z + d)[None])[0]) for d in noises) / len(noises)
    objective = -(
        torch.log(mean[label]) if mean[label] > floor else torch.zeros_like(z).sum() * z.sum()
    )
    objective.backward()
    return z.grad, mean.detach()


def project(z, centre, radius):
    distance = math.sqrt(float(((z - centre) ** 2).sum()))
    return z if distance <= radius else centre + (z - centre) * (radius / distance)


def ascent(network, x, label, noises, steps, step_size, after_step, floor, plus):
    """x and the iterates; `plus` is added to the norm that a gradient is divided by."""
    path = [x]
    for _ in range(steps):
        gradient, _ = attack_gradient(network, path[-1], label, noises, floor)
        z = path[-1] + step_size * gradient / (math.sqrt(float((gradient**2).sum())) + plus)
        path.append(after_step(z))
    return path


def pgd_example(network, x, label, noises, *, epsilon, steps, official, clamp_first, floor, plus):
    def after_step(z):
        if official and clamp_first:
            z = z.clamp(0, 1)
        z = project(z, x, epsilon)
        return z.clamp(0, 1) if official and not clamp_first else z

    return ascent(network, x, label, noises, steps, 2 * epsilon / steps, after_step, floor, plus)[
        -1
    ]


def ddn_example(network, x, label, noises, *, epsilon, steps, official):
    """Rony et al. (2019) as SmoothAdv's code has it, one image: direction and norm apart."""

    def votes_for_another_class(z):
        predictions = [int(network((z + d)[None])[0].argmax()) for d in noises]
        most = max(predictions.count(c) for c in predictions)
        winner = min(c for c in predictions if predictions.count(c) == most)
        return winner != int(label)

    farthest = math.sqrt(sum(max(float(p), 1 - float(p)) ** 2 for p in x.flatten()))
    delta, norm = torch.zeros_like(x), epsilon
    best, best_length = torch.zeros_like(x), farthest
    for i in range(steps):
        gradient, _ = attack_gradient(network, x + delta, label, noises, 0.0)
        if votes_for_another_class(x + delta):
            if float(delta.norm()) < best_length:
                best, best_length = delta, float(delta.norm())
            norm = norm * 0.95
        else:
            norm = norm * 1.05
        norm = min(norm, farthest)
        rate = 0.01 + 0.99 * (1 + math.cos(math.pi * (i + 1) / steps)) / 2
        delta = delta + rate * gradient / gradient.norm()
        z = torch.round((x + norm * delta / delta.norm()) * 255) / 255
        if official:
            z = z.clamp(0, 1)
        delta = z - x
    best = project(best, torch.zeros_like(best), epsilon)
    return x + torch.round(best * 255) / 255


def gaussian(model, x, y, noise, lam, *, epoch, fidelity):
    return mean_cross_entropy(noisy_forward(model, x, noise), y)


def stability(model, x, y, noise, lam, *, epoch, fidelity, weight):
    clean, noisy = model(x), model(x + noise[0])
    loss = 0
    for b in range(len(x)):
        target = softmax(clean[b])
        loss = loss - log_probability(clean[b], y[b])
        for c in range(len(target)):
            loss = loss - weight * target[c] * log_probability(noisy[b], c)
    return loss / len(x)


def smoothadv(model, x, y, noise, lam, *, epoch, fidelity, epsilon, steps, attack, warmup_epochs):
    official, network = fidelity == "official", frozen(model)
    full = epsilon if epsilon is not None else (255 / 256 if official else 1.0)
    radius = full * min(1, (epoch + 1) / warmup_epochs)
    adversarial = []
    for b in range(len(x)):
        noises = [d[b] for d in noise]
        if attack == "ddn":
            z = ddn_example(
                network, x[b], y[b], noises, epsilon=radius, steps=steps, official=official
            )
        else:
            options = {"clamp_first": True, "floor": 0.0, "plus": 0.0, "official": official}
            z = pgd_example(network, x[b], y[b], noises, epsilon=radius, steps=steps, **options)
        adversarial.append(z)
    return mean_cross_entropy(noisy_forward(model, adversarial, noise), y)


def macer(model, x, y, noise, lam, *, epoch, fidelity, sigma, weight, beta, gamma, defer_epochs):
    logits = noisy_forward(model, x, noise)
    normal = torch.distributions.Normal(0.0, 1.0)
    classification = robustness = 0
    for b in range(len(x)):
        classification = classification - torch.log(mean_prediction(logits, b)[y[b]] + 1e-10)
        sharp = sum(softmax(beta * row[b]) for row in logits) / len(logits)
        order = sharp.argsort(descending=True)
        if order[0] != y[b]:
            continue
        gap = normal.icdf(sharp[order[1]]) - normal.icdf(sharp[order[0]])
        if gap.isfinite() and gap.abs() <= gamma:
            robustness = robustness + sigma / 2 * (gap + gamma)
    return (classification + (weight if epoch >= defer_epochs else 0) * robustness) / len(x)


def consistency(
    model,
    x,
    y,
    noise,
    lam,
    *,
    epoch,
    fidelity,
    weight,
    entropy_weight,
    epsilon,
    steps,
    warmup_epochs,
):
    images = list(x)
    if epsilon > 0:
        network, radius = frozen(model), epsilon * min(1, (epoch + 1) / warmup_epochs)
        options = {
            "clamp_first": False,
            "floor": 1e-20,
            "plus": 1e-8,
            "official": fidelity == "official",
        }
        for b in range(len(x)):
            noises = [d[b] for d in noise]
            images[b] = pgd_example(
                network, x[b], y[b], noises, epsilon=radius, steps=steps, **options
            )
    logits = noisy_forward(model, images, noise)
    regulariser = 0
    for b in range(len(x)):
        mean = mean_prediction(logits, b)
        for c in range(len(mean)):
            log_mean = torch.log(mean[c].clamp(min=1e-20))
            regulariser = regulariser - entropy_weight * mean[c] * log_mean
            for row in logits:
                regulariser = regulariser + weight / len(noise) * mean[c] * (
                    log_mean - log_probability(row[b], c)
                )
    return mean_cross_entropy(logits, y) + regulariser / len(x)


def smoothmix(
    model,
    x,
    y,
    noise,
    lam,
    *,
    epoch,
    fidelity,
    steps,
    step_size,
    eta,
    one_step,
    one_step_radius,
    limit,
    warmup_epochs,
):
    official, network = fidelity == "official", frozen(model)
    share = min(1, (epoch + 1) / warmup_epochs) if official else 1
    near, far = list(x), []
    for b in range(len(x)):

        def after_step(z, centre=x[b]):
            if limit is not None:
                z = project(z, centre, limit)
            return z.clamp(0, 1) if official else z

        path = ascent(
            network, x[b], y[b], [d[b] for d in noise], steps, step_size, after_step, 1e-20, 1e-8
        )
        far.append(path[-1])
        if one_step and not (official and steps == 1 and one_step_radius is None):
            radius = step_size if one_step_radius is None else one_step_radius
            near[b] = project(path[1], x[b], radius * share)
            near[b] = near[b].clamp(0, 1) if official else near[b]

    logits = noisy_forward(model, near, noise)
    x_mix = [(1 - lam[b]) * near[b] + lam[b] * far[b] for b in range(len(x))]
    mixed = noisy_forward(model, x_mix, noise)
    mix_loss = 0
    for b in range(len(x)):
        smoothed = mean_prediction(logits, b)
        if official and smoothed.argmax() != y[b]:
            continue
        for row in mixed:
            for c in range(len(smoothed)):
                target = (1 - lam[b]) * smoothed[c] + lam[b] / len(smoothed)
                mix_loss = mix_loss - target * log_probability(row[b], c)
                if official:
                    mix_loss = mix_loss + target * torch.log(target)
    return mean_cross_entropy(logits, y) + eta * share * mix_loss / (len(noise) * len(x))


def denoiser(model, x, y, noise, mix, *, epoch, fidelity, objective, mse_epochs):
    noisy = torch.stack([x[b] + d[b] for d in noise for b in range(len(x))])
    denoised = model.denoiser(noisy)
    if objective == "mse" or epoch < mse_epochs:
        errors = [
            (pixel - original) ** 2
            for copy_number in range(len(noise))
            for b in range(len(x))
            for pixel, original in zip(
                denoised[copy_number * len(x) + b].flatten(), x[b].flatten(), strict=True
            )
        ]
        return sum(errors) / len(errors)
    classifier = frozen(model.classifier)
    total = 0
    for i, image in enumerate(denoised):
        label = classifier(x[i % len(x)][None])[0].argmax()
        total = total - log_probability(classifier(image[None])[0], label)
    return total / len(denoised)


LOSSES = {
    "denoiser": denoiser,
    "gaussian": gaussian,
    "stability": stability,
    "smoothadv": smoothadv,
    "macer": macer,
    "consistency": consistency,
    "smoothmix": smoothmix,
}
