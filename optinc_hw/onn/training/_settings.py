"""How networks and cells are trained."""

from dataclasses import dataclass
from typing import Literal

from optinc_hw.errors import NetworkError
from optinc_hw.onn._checks import whole_number

Method = Literal["manifold", "projection", "free"]
Loss = Literal["margin", "two_stage"]


@dataclass(frozen=True)
class TrainingSettings:
    """How a network or a cell is trained.

    Parameters
    ----------
    sizes
        Signals before the first and after each layer. Where neither side of a layer is a multiple of the other, its
        last block is cut, and `realise` does not find the whole block again.
    epochs
        Passes over the inputs; the rate falls to 0 over them as half a cosine.
    batch
        Inputs of a step.
    rate
        First learning rate of Adam.
    squares
        Part of the epochs, the first stage of the loss.
    margin
        Distance from the decision threshold that is aimed at, in level distances below 0.5.
    enough
        Margin at which training ends; None for none.
    noise
        Relative standard deviation of noise on what each layer is given: in the second stage, and in every look at all
        inputs, which draws the same each time.
    inputs_per_epoch
        Inputs drawn for each epoch from spaces that have more.
    seed
        Of first weights, order of inputs and noise.
    method
        ``"manifold"``: matrices are in blocks ``Sigma U`` at every step. ``"projection"``: they are free, and projected
        onto the nearest blocks at every look, as in OptINC (arXiv 2603.28290). ``"free"``: any matrices, for ``Re(U)``.
    loss
        ``"margin"``: squared error of the levels, then only what lies further from its level than half a level less
        ``margin``. ``"two_stage"``: the paper's: squared error of the levels, each weighted with the place value of its
        digit; then the squared error of the number that they make.
    clip
        Largest norm of a step's gradient; longer ones are shortened.
    spectral
        Weight of a penalty on the squared spectral norm of every matrix: a mesh whose real part is read out holds a
        matrix over its spectral norm, so that noise counts in proportion to it.
    jitter
        Largest error of the carry that a cell is given, in distances of its levels.
    look_epochs
        Epochs between two looks at all inputs.

    Raises
    ------
    NetworkError
        If a value is out of range.
    """

    sizes: tuple[int, ...]
    epochs: int = 1000
    batch: int = 1024
    rate: float = 5e-3
    squares: float = 0.5
    margin: float = 0.45
    enough: float | None = 0.42
    noise: float = 0.0
    inputs_per_epoch: int = 1 << 17
    seed: int = 0
    method: Method = "manifold"
    loss: Loss = "margin"
    clip: float = 0.1
    spectral: float = 0.0
    jitter: float = 0.2
    look_epochs: int = 10

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or not all(whole_number(size, 1) for size in self.sizes):
            raise NetworkError(f"sizes must be at least two integers of at least 1, got {self.sizes!r}")
        for name in ("epochs", "batch", "inputs_per_epoch", "look_epochs"):
            if not whole_number(getattr(self, name), 1):
                raise NetworkError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}")
        for name, low, high in (
            ("rate", 0.0, 1.0), ("squares", 0.0, 1.0), ("margin", 0.0, 0.5), ("enough", 0.0, 0.5), ("noise", 0.0, 1.0),
            ("clip", 1e-12, 1e12), ("spectral", 0.0, 1.0), ("jitter", 0.0, 0.5),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise NetworkError(f"{name} must lie between {low:g} and {high:g}, got {value!r}")
        for name, known in (("method", ("manifold", "projection", "free")), ("loss", ("margin", "two_stage"))):
            if getattr(self, name) not in known:
                raise NetworkError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")


CELL_SETTINGS = TrainingSettings(
    (2, 32, 32, 2), epochs=3000, batch=250, rate=1e-2, enough=None, clip=1.0, look_epochs=100
)
"""Settings for cells of one digit: `dataclasses.replace` other sizes."""
