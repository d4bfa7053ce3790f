"""The local oscillator's readings, from which the twin's fit starts."""

import numpy as np

from calibration._electrical import (
    measure_dark,
    measure_fringes,
    measure_noise,
    measure_resistances,
    noise_model,
    use_fringes,
    use_resistances,
)
from calibration._field_mesh import find_mesh
from calibration._optical import find_attenuators, find_generator
from calibration._session import Session
from optinc_hw.bench import Bench


def test_the_local_oscillator_is_read_with_all_inputs_dark():
    with Bench.simulated(ports=2, seed=0) as bench:
        session = Session(bench, np.random.default_rng(0), lambda *_: None)
        use_resistances(session, measure_resistances(session))
        noise = noise_model(measure_dark(session)["dark_readings"], measure_noise(session)["noise_readings"])
        use_fringes(session, measure_fringes(session))
        for stage in (find_attenuators, find_generator):
            stage(session)
        found = find_mesh(session, noise)[1]["lo_readings"]
        for heater in session.layout.input_theta:
            session.power[heater] = session.power_for_phase(int(heater), 0.0)
        np.testing.assert_allclose(found, session.measure(session.power[None])[0], rtol=0.01)
