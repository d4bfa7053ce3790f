"""All kinds of simulated instruments; a new one needs its line here."""

from simulated_instruments import dicon_1xn, keysight_n7745a, polatis_oxc, qontrol_q8iv, santec_tsl570

KINDS = {kind.name: kind for kind in (qontrol_q8iv.KIND, santec_tsl570.KIND, keysight_n7745a.KIND, polatis_oxc.KIND, dicon_1xn.KIND)}
"""Kind by name."""
