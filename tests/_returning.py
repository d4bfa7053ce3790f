"""Executors that return their answers in all ways that are allowed, and in some that are not."""

import numpy as np

from optinc_hw.onn import quantised_mean

RIGHT = {
    "out": lambda means: means,
    "int64": lambda means: means,
    "the narrowest type": lambda means: means.astype(np.uint8),
    "a list": lambda means: means.tolist(),
    "a view with steps": lambda means: np.repeat(means, 2)[::2],
}
WRONG = {
    "just above": (
        lambda means, top: np.r_[means[:-1], top + 1],
        "answer at index .* is .*; allowed are 0 to {top}\\b",
    ),
    "far above": (lambda means, top: means + (top + 1), "answer at index .* is .*; allowed are 0 to {top}\\b"),
    "negative": (lambda means, top: means - means - 1, "answer at index .0,. is -1; allowed are 0 to {top}\\b"),
    "floats": (lambda means, top: means.astype(float), "Returning's answer must be integers, got dtype float64"),
    "too few": (lambda means, top: means[:-1], r"Returning answered \d+ elements with shape .\d+,."),
    "one for all": (lambda means, top: means[:1], r"Returning answered \d+ elements with shape .1,."),
    "a column": (lambda means, top: means[:, None], r"Returning answered \d+ elements with shape .\d+, 1."),
    "nothing": (lambda means, top: None, "Returning's answer must be integers, got dtype object"),
}


class Returning:
    """Finds the means and returns what `RIGHT` or `WRONG` makes of them, right ones in a new array except for "out".

    Wrong ones are written to ``out`` if they fit it; NumPy narrows them without a word, as it does for any executor.
    """

    batch_limit = None

    def __init__(self, name, servers=4, bits=8):
        self.servers, self.bits, self.inputs = servers, bits, -(-bits // 2)
        self._anew = name in RIGHT and name != "out"
        self._make = RIGHT[name] if name in RIGHT else lambda means: WRONG[name][0](means, 2**bits - 1)

    def run(self, codes, out=None):
        answers = self._make(quantised_mean(codes))
        if self._anew or out is None or answers is None or np.shape(answers) != out.shape:
            return answers
        out[:] = np.asarray(answers).astype(out.dtype)
        return out
