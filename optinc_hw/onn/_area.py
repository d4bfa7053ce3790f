"""Area of optical networks in Mach-Zehnder interferometers (OptINC, area model; see `count_mzis`)."""

from typing import Literal

from optinc_hw.errors import MatrixError, NetworkError

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
    from optinc_hw.photonics.realise import mzi_count  # here: networks are built without the torch of photonics

    try:
        return mzi_count(shape, form)
    except MatrixError as error:
        raise NetworkError(str(error)) from error
