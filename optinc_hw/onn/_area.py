"""Area of optical networks in Mach-Zehnder interferometers (OptINC, area model; see `count_mzis`)."""

from typing import Literal

from optinc_hw.errors import NetworkError

Form = Literal["svd", "sigma_u", "re_u"]


def count_mzis(shape: tuple[int, int], form: Form = "svd") -> int:
    """Count the MZIs that hold a real matrix of the given shape.

    Parameters
    ----------
    shape
        (outputs m, inputs n) of the matrix.
    form
        ``"svd"``: two meshes and a column of attenuators, (m (m + 1) + n (n - 1)) / 2, any matrix.
        ``"sigma_u"``: the paper's approximated layer, ceil(max / min) square blocks of s (s + 1) / 2 with s = min;
        only matrices whose blocks are a diagonal times an orthogonal matrix.
        ``"re_u"``: one mesh of p = max(m, n) ports read out by its real part, p (p - 1) / 2, any matrix up to a
        common gain.

    Raises
    ------
    NetworkError
        If a dimension is below 1 or the form is unknown.
    """
    rows, cols = shape
    if rows < 1 or cols < 1:
        raise NetworkError(f"a matrix of shape {shape} holds nothing; both dimensions must be at least 1")
    large, small = max(rows, cols), min(rows, cols)
    if form == "svd":
        return (rows * (rows + 1) + cols * (cols - 1)) // 2
    if form == "sigma_u":
        return -(-large // small) * (small * (small + 1) // 2)
    if form == "re_u":
        return large * (large - 1) // 2
    raise NetworkError(f"form must be 'svd', 'sigma_u' or 're_u', got {form!r}")
