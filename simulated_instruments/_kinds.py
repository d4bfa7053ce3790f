"""All kinds of simulated instruments; a new one needs its line here."""

from simulated_instruments import (
    cobrite,
    dicon_1xn,
    keithley_2600,
    keysight_laser,
    keysight_n7745a,
    nicslab_xpow,
    polatis_oxc,
    qdevil_qdac2,
    qontrol,
    santec_mpm,
    santec_tsl570,
    thorlabs_pm,
)

KINDS = {
    kind.name: kind
    for kind in (
        cobrite.KIND,
        qontrol.KIND,
        qontrol.Q8IV_KIND,
        santec_tsl570.KIND,
        keysight_laser.KIND,
        keysight_n7745a.KIND,
        polatis_oxc.KIND,
        dicon_1xn.KIND,
        keithley_2600.KIND,
        nicslab_xpow.KIND,
        qdevil_qdac2.KIND,
        thorlabs_pm.KIND,
        santec_mpm.KIND,
    )
}
"""Kind by name."""
