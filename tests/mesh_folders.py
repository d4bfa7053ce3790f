"""Bench folders on fakes for chips with other meshes than complete rectangular ones."""

import bench_fakes
from bench_fakes import write_fake_folder
from ruamel.yaml import YAML


def write_mesh_folder(place, layout="rectangular", mesh=None, *, wired=None, unwired=()):
    """Write a four-port bench folder with a mesh section, all heaters of a layout wired in order."""
    bench_fakes.reset()
    folder = write_fake_folder(place, 4)
    yaml = YAML(typ="safe", pure=True)
    data = yaml.load((folder / "chip.yaml").read_text())
    data["layout"] = layout
    if mesh is not None:
        data["mesh"] = mesh
    if wired is not None:
        names = [name for name in wired.heaters if name not in unwired]
        data["heaters"] = {"defaults": data["heaters"]["defaults"]} | {
            name: {"instrument": "heaters_0", "channel": k} for k, name in enumerate(names)
        }
    with (folder / "chip.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(data, file)
    return folder
