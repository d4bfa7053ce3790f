"""All kinds of simulated instruments; a new one needs its line here."""

from simulated_instruments import keysight_n7745a, qontrol_q8iv, santec_tsl570

KINDS = {kind.name: kind for kind in (qontrol_q8iv.KIND, santec_tsl570.KIND, keysight_n7745a.KIND)}
"""Kind by name."""
