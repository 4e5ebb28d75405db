"""`make bench`: every benchmark, one table."""

from __future__ import annotations

import torch

from benchmarks import certification, training_step


def main() -> None:
    """Measure and print."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}\n")
    print("Certification: noisy samples a second (block 256; the reference runs batches of 1000)")
    for network, draws in (("lenet", 10_000), ("cifar_resnet20", 2_000)):
        for row in certification.measure(network, draws=draws):
            print(f"  {row.network:15} {row.way:30} {row.samples_per_second:9,.0f} /s {row.ratio:6.2f}x", flush=True)
    print("\nTraining: a SmoothMix step (m=4, T=8, LeNet, 64 images)")
    for step in training_step.measure():
        print(f"  {step.name:46} {step.images_per_second:9,.0f} /s {step.ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
