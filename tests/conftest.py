"""Settings for all tests: one thread for numpy and torch, which on small matrices and busy cores is far faster."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
