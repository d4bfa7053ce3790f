"""A bare mesh in a lab, simulated arm by arm without any of the product's optics: a `calibration._probe.Probe`.

Every waveguide section between couplers is an arm with a phase of its own; heaters warm all arms, bare ones included.
"""

import numpy as np

from optinc_hw.photonics import ChipLayout

PRESETS = {"A": (0.0, 0.02, True), "B": (0.067, 0.006, False)}
"""Mean and spread of the coupler angles beyond pi/4 in rad; whether neighbours always warm."""


class LabMesh:
    """A chip with imperfections drawn from a seed.

    ``dead`` heaters warm nothing, ``blind`` detectors show only noise; ``inputs_w`` is the laser's power.
    """

    def __init__(
        self, ports, seed, preset="A", *, floor=1e-5, relative=1e-3, crosstalk=0.015, efficiency=1.0, dead=(), blind=(),
        inputs_w=1e-3, p_pi_w=0.02,
    ):  # fmt: skip
        rng = np.random.default_rng([seed, 77])
        self.layout = ChipLayout(ports, inputs="ports", receivers="power")
        mesh, heaters = self.layout.mesh, len(self.layout.heaters)
        mean, spread, warm = PRESETS[preset]
        self.eta = np.pi / 4 + mean + spread * rng.standard_normal((len(mesh.mzis), 2))
        # Arms in the order (column, external or internal section, mode).
        self.sites = np.array([(2 * c + s, m) for c in range(mesh.depth) for s in (0, 1) for m in range(ports)], float)
        distance = np.linalg.norm(self.sites[:, None] - self.layout.heater_sites[None], axis=-1)
        scatter = rng.standard_normal(distance.shape)
        heat = crosstalk * np.exp((1.0 - distance) / 1.5) * (1.0 + 0.3 * scatter if warm else scatter)
        heat[distance < 0.5] = 1.0
        own = np.pi / p_pi_w * efficiency * (1.0 + 0.02 * rng.standard_normal(heaters))
        own[[self.layout.heater_index[name] for name in dead]] = 0.0
        self.heat = heat * own
        self.offset = rng.uniform(0.0, 2.0 * np.pi, len(self.sites))
        self.passed = 10 ** (-(0.15 + 0.05 * rng.standard_normal(len(mesh.mzis))) / 20)
        self.entered = np.sqrt(inputs_w) * 10 ** (0.3 * rng.standard_normal(ports) / 20)
        self.gain = 1.0 + 0.05 * rng.standard_normal(ports)
        self.gain[list(blind)] = 0.0
        self.relative, self.floor_w = relative, floor * inputs_w
        self.max_power_w = np.full(heaters, 2.5 * p_pi_w)
        self.max_total_power_w = np.inf
        self.nominal_efficiency = np.full(heaters, np.pi / p_pi_w)
        self.readings = 0
        self.stages = []
        self._rng = np.random.default_rng([seed, 78])

    def powers(self, power_w, lit):
        """Noiseless readings (B, n) in W."""
        arms, mesh, ports = self._arms(power_w), self.layout.mesh, self.layout.ports
        fields = np.zeros((len(lit), ports), dtype=complex)
        fields[np.arange(len(lit)), lit] = self.entered[lit]
        for column, cells in enumerate(mesh.columns):
            cells = np.array(cells, dtype=int)
            for section in (0, 1):
                fields = fields * np.exp(1j * arms[:, column, section])
                eta, upper = self.eta[cells, section], mesh.modes[cells]
                mixed = fields.copy()
                mixed[:, upper] = np.cos(eta) * fields[:, upper] + 1j * np.sin(eta) * fields[:, upper + 1]
                mixed[:, upper + 1] = 1j * np.sin(eta) * fields[:, upper] + np.cos(eta) * fields[:, upper + 1]
                fields = mixed
            for mode in (upper, upper + 1):
                fields[:, mode] *= self.passed[cells]
        return self.gain * np.abs(fields) ** 2

    def measure(self, stage, power_w, lit):
        """Noisy readings (B, n) in W."""
        assert np.isfinite(power_w).all()
        assert (power_w >= 0.0).all()
        assert (power_w <= self.max_power_w).all()
        assert (power_w.sum(axis=1) <= self.max_total_power_w).all()
        clean = self.powers(power_w, lit)
        self.readings += len(lit)
        self.stages.append(stage)
        noise = self._rng.standard_normal((2, *clean.shape))
        return clean * (1.0 + self.relative * noise[0]) + self.floor_w * noise[1]

    def phases(self, power_w):
        """True phases theta and phi (B, K) of the MZIs: what is common to two arms is carried towards the outputs."""
        arms, mesh = self._arms(power_w), self.layout.mesh
        return carried_phases(mesh, arms, np.zeros((len(arms), mesh.ports)))

    def _arms(self, power_w):
        arms = self.offset + np.asarray(power_w) @ self.heat.T
        return arms.reshape(len(arms), self.layout.mesh.depth, 2, self.layout.ports)


def carried_phases(mesh, arms, before):
    """Phases theta and phi (B, K) of arms (B, columns, 2, n) behind input phases (B, n)."""
    carried = before.copy()
    theta, phi = (np.zeros((len(arms), len(mesh.mzis))) for _ in range(2))
    for column, cells in enumerate(mesh.columns):
        carried = carried + arms[:, column, 0]
        inner = arms[:, column, 1].copy()
        for k in cells:
            m = mesh.mzis[k][1]
            phi[:, k], theta[:, k] = carried[:, m] - carried[:, m + 1], inner[:, m] - inner[:, m + 1]
            carried[:, m] = carried[:, m + 1] = carried[:, m + 1] + inner[:, m + 1]
            inner[:, m : m + 2] = 0.0
        carried = carried + inner
    return theta, phi


def phase_errors(chip, offset, efficiency, settings=40, seed=5):
    """Mean errors of theta and phi (K,) in rad over random settings, input phases (which powers cannot see) removed.

    ``offset`` (H,) may hold at any power as long as crosstalk is not modelled: ``phase = offset + efficiency * power``.
    """
    power = np.random.default_rng(seed).uniform(0.0, 2.0, (settings, len(offset))) * np.pi / chip.nominal_efficiency
    return twin_errors(chip, offset + efficiency * power, power)


def twin_errors(chip, phases, power_w):
    """Mean errors of theta and phi (K,) in rad of predicted phases (B, H) at powers (B, H), input phases removed."""
    layout, mesh = chip.layout, chip.layout.mesh
    theta, phi = chip.phases(power_w)
    errors = [
        np.angle(np.exp(1j * (phases[:, which] - truth)).mean(axis=0))
        for which, truth in ((layout.mesh_theta, theta), (layout.mesh_phi, phi))
    ]
    ports = mesh.ports
    pushed = carried_phases(mesh, np.zeros((ports, mesh.depth, 2, ports)), np.eye(ports))[1].T
    early = np.array([c < 2 for c, _ in mesh.mzis])
    inputs = np.linalg.lstsq(pushed[early], errors[1][early], rcond=None)[0]
    return errors[0], (errors[1] - pushed @ inputs + np.pi) % (2.0 * np.pi) - np.pi
