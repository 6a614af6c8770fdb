"""A small convolutional network on scikit-learn's digits, trained privately.

python examples/torch_model.py --epsilon 4 --epochs 10
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import antiphon as ap


def main() -> None:
    """Train, score on public digits, print the certificate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", help="file for the exported model, such as digits.safetensors")
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)  # 16 is known
    y = torch.tensor(labels)
    public, private = slice(0, 297), slice(297, None)

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),  # not BatchNorm: it mixes examples
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    run = ap.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=2.0),
        (x[private], y[private]),
        lambda model, x, y: nn.functional.cross_entropy(model(x), y),  # of one example
        epsilon=options.epsilon,
        delta=1e-4,
        epochs=options.epochs,
        batch_size=150,
        clip_norm=0.5,
        mechanism="independent",  # best at a tenth of the data per batch; "auto" would find that
    )
    run.train()
    with torch.no_grad():
        right = (model(x[public]).argmax(1) == y[public]).double().mean()
    print(run.certificate)
    print(f"accuracy on public digits: {right:.3f}")
    if options.out:
        run.export(options.out)


if __name__ == "__main__":
    main()
