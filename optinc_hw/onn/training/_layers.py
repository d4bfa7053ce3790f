"""Layers that are trained: in blocks ``Sigma U`` at every step, projected onto them now and then, or free."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from optinc_hw.onn.training._settings import Method
from optinc_hw.photonics import realise


class SigmaULayer(nn.Module):
    """Linear layer with a bias whose square blocks, cut along the longer side, are ``diag(sigma) U``, U orthogonal.

    ``U = base @ cayley(skew)``; `settle` moves what was learned into the base, because the Cayley transform is best
    conditioned near the identity (OptINC projects instead, arXiv 2603.28290, section on training).

    Parameters
    ----------
    rows, columns
        Shape (m, n) of the matrix.
    generator
        Draws the orthogonal blocks; rows get the length of independent entries of variance 2 / n.
    """

    base: Tensor

    def __init__(self, rows: int, columns: int, generator: torch.Generator) -> None:
        super().__init__()
        side = min(rows, columns)
        blocks = -(-max(rows, columns) // side)
        self.shape = rows, columns
        drawn = torch.randn(blocks, side, side, generator=generator, dtype=torch.float64)
        orthogonal, upper = torch.linalg.qr(drawn)
        signs = torch.sign(torch.diagonal(upper, dim1=-2, dim2=-1))
        self.register_buffer("base", (orthogonal * signs[:, None, :]).float())
        length = (2.0 * side / columns) ** 0.5
        self.sigma = nn.Parameter(torch.full((blocks, side), length))
        self.skew = nn.Parameter(torch.zeros(blocks, side, side))
        self.bias = nn.Parameter(torch.zeros(rows))

    def blocks(self) -> Tensor:
        """Orthogonal blocks (blocks, s, s)."""
        skew = self.skew - self.skew.mT
        one = torch.eye(skew.shape[-1], dtype=skew.dtype)
        turned: Tensor = self.base @ torch.linalg.solve(one + skew, one - skew)
        return turned

    def weight(self) -> Tensor:
        """Matrix (m, n)."""
        rows, columns = self.shape
        scaled = self.sigma[:, :, None] * self.blocks()
        return torch.cat(list(scaled), dim=1 if columns > rows else 0)[:rows, :columns]

    def forward(self, signals: Tensor) -> Tensor:
        """Signals (batch, n) to (batch, m)."""
        return nn.functional.linear(signals, self.weight(), self.bias)

    @torch.no_grad()
    def settle(self) -> None:
        """Make the present blocks the base, orthogonal to the precision of float32 again."""
        left, _, right = torch.linalg.svd(self.blocks().double())
        self.base.copy_((left @ right).float())
        self.skew.zero_()

    @torch.no_grad()
    def load(self, sigma: NDArray[np.float64], blocks: NDArray[np.float64], bias: NDArray[np.float64]) -> None:
        """Start from attenuations (blocks, s), orthogonal blocks (blocks, s, s) and a bias (m,)."""
        self.sigma.copy_(torch.from_numpy(sigma.copy()))
        self.base.copy_(torch.from_numpy(blocks.copy()))
        self.skew.zero_()
        self.bias.copy_(torch.from_numpy(bias.copy()))

    @torch.no_grad()
    def exact_weight(self) -> NDArray[np.float64]:
        """Matrix (m, n) in float64, its blocks orthogonal to that precision."""
        rows, columns = self.shape
        left, _, right = torch.linalg.svd(self.blocks().double())
        scaled = self.sigma.double()[:, :, None] * (left @ right)
        whole = torch.cat(list(scaled), dim=1 if columns > rows else 0)[:rows, :columns]
        return np.asarray(whole.numpy(), dtype=np.float64)


class DenseLayer(nn.Module):
    """Linear layer with a bias and any matrix.

    Parameters
    ----------
    rows, columns
        Shape (m, n) of the matrix.
    generator
        Draws the entries, independent ones of variance 2 / n.
    projected
        Whether `settle` replaces the matrix by its nearest blocks ``diag(sigma) U``, as OptINC does now and then: U the
        orthogonal polar factor of each block, sigma fitted row by row.
    """

    def __init__(self, rows: int, columns: int, generator: torch.Generator, *, projected: bool) -> None:
        super().__init__()
        drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        self.matrix = nn.Parameter((drawn * (2.0 / columns) ** 0.5).float())
        self.bias = nn.Parameter(torch.zeros(rows))
        self.projected = projected

    def weight(self) -> Tensor:
        """Matrix (m, n)."""
        return self.matrix

    def forward(self, signals: Tensor) -> Tensor:
        """Signals (batch, n) to (batch, m)."""
        return nn.functional.linear(signals, self.matrix, self.bias)

    @torch.no_grad()
    def settle(self) -> None:
        """Project, if that is the method."""
        if self.projected:
            self.matrix.copy_(torch.from_numpy(self.exact_weight()))

    @torch.no_grad()
    def load(self, weight: NDArray[np.float64], bias: NDArray[np.float64]) -> None:
        """Start from a matrix (m, n) and a bias (m,)."""
        self.matrix.copy_(torch.from_numpy(weight.copy()))
        self.bias.copy_(torch.from_numpy(bias.copy()))

    @torch.no_grad()
    def exact_weight(self) -> NDArray[np.float64]:
        """Matrix (m, n) in float64; projected, if that is the method."""
        whole = np.asarray(self.matrix.detach().double().numpy()).copy()
        return realise(whole, "sigma_u").matrix() if self.projected else whole


class TrainableNetwork(nn.Module):
    """Multi-layer perceptron of ReLUs, from averages to levels.

    Parameters
    ----------
    sizes
        Signals before the first and after each layer.
    middle
        Middle of the inputs' ranges, which is also their half width.
    generator
        Of the first weights.
    method
        Of the layers, see `TrainingSettings`.
    """

    middle: Tensor

    def __init__(self, sizes: tuple[int, ...], middle: float, generator: torch.Generator, method: Method) -> None:
        super().__init__()
        shapes = zip(sizes[1:], sizes[:-1], strict=True)
        self.parts: tuple[SigmaULayer | DenseLayer, ...] = tuple(
            SigmaULayer(rows, columns, generator)
            if method == "manifold"
            else DenseLayer(rows, columns, generator, projected=method == "projection")
            for rows, columns in shapes
        )
        self.layers = nn.ModuleList(self.parts)  # for torch, which does not look into tuples
        self.register_buffer("middle", torch.tensor(middle))

    def forward(self, inputs: Tensor, noise: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """Levels (batch, outputs) for inputs (batch, K), with relative noise on what every layer is given."""
        signals = inputs / self.middle - 1.0
        for number, layer in enumerate(self.parts):
            if number:
                signals = torch.relu(signals)
            if noise:
                drawn = torch.randn(signals.shape, generator=generator, dtype=signals.dtype)
                signals = signals * (1.0 + noise * drawn)
            signals = layer(signals)
        return signals

    def spectral_norms(self) -> Tensor:
        """Spectral norm (layers,) of each matrix."""
        return torch.stack([torch.linalg.matrix_norm(layer.weight(), ord=2) for layer in self.parts])
