"""The report's page: one HTML file that ties figures, numbers and pictures together."""

from dataclasses import dataclass
from html import escape

from optinc_hw.demo._summary import TWIN_LIMITS, DemoSummary

PAGE = "index.html"

_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>optinc demo</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2430; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: 0.25rem 1.2rem 0.25rem 0; border-bottom: 1px solid #e3e6ea; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.ok { color: #2e8b57; } .bad { color: #b8325a; font-weight: 600; }
img { max-width: 100%; height: auto; border: 1px solid #e3e6ea; }
code { background: #f4f5f7; padding: 0 0.25em; }
</style>
"""


@dataclass(frozen=True)
class Picture:
    """A picture on the page.

    Parameters
    ----------
    file
        Name of its file in the report folder.
    title, caption
        Heading and text.
    """

    file: str
    title: str
    caption: str


def page(summary: DemoSummary, pictures: tuple[Picture, ...], files: dict[str, str]) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    summary
        What the demo found.
    pictures
        Pictures in the order of the page.
    files
        Meaning of each other file of the folder, by name.
    """
    verdict = '<span class="ok">done</span>' if summary.passed else '<span class="bad">not done</span>'
    parts = [
        _HEAD,
        f"<h1>optinc demo: {verdict}</h1>",
        f"<p>Simulated chip of {summary.ports} ports, seed {summary.seed}, optinc-hw {escape(summary.version)}. "
        "A chip whose phases nobody knows is calibrated from readings alone, an optical network that averages the "
        "gradients of four workers is mapped onto it, and a training run uses it.</p>",
        _criteria(summary),
        f"<p>{escape(TWIN_LIMITS)}</p>",
    ]
    for picture in pictures:
        name = escape(picture.file)
        parts.append(f"<h2>{escape(picture.title)}</h2>\n<p>{escape(picture.caption)}</p>")
        parts.append(f'<p><a href="{name}"><img src="{name}" alt="{escape(picture.title)}"></a></p>')
    parts.append("<h2>Numbers</h2>\n" + _numbers(summary))
    parts.append("<h2>Time</h2>\n" + _rows([(stage, f"{value:.1f} s") for stage, value in summary.seconds.items()]))
    listed = "".join(
        f'<li><a href="{escape(name)}"><code>{escape(name)}</code></a>: {escape(meaning)}</li>'
        for name, meaning in files.items()
    )
    parts.append(f"<h2>Files</h2>\n<ul>{listed}</ul>\n</html>\n")
    return "\n".join(parts)


def _criteria(summary: DemoSummary) -> str:
    rows = "".join(
        f'<tr><td>{escape(c.name)}</td><td class="n">{c.value:.4g}</td><td>{escape(c.requirement)}</td>'
        f'<td class="{"ok" if c.passed else "bad"}">{"met" if c.passed else "not met"}</td></tr>'
        for c in summary.criteria
    )
    return f"<table><tr><th>figure</th><th>found</th><th>wanted</th><th></th></tr>{rows}</table>"


def _numbers(summary: DemoSummary) -> str:
    runs = zip(summary.accuracy_optical_runs, summary.accuracy_float_runs, strict=True)
    accuracies = ", ".join(f"{100 * optical:.2f} / {100 * float_:.2f} %" for optical, float_ in runs)
    return _rows([
        ("readings of the calibration (all detectors each)", f"{summary.readings}"),
        ("readings of the whole demo", f"{summary.bench_readings}"),
        ("noise of a reading, relative", f"{100 * summary.noise_relative:.3f} %"),
        ("noise of a reading, without light", f"{summary.noise_floor_w * 1e9:.2f} nW"),
        ("symbol error rate, bench", f"{summary.bench_symbol_error_rate:.2g} ({summary.bench_elements} elements)"),
        ("symbol error rate, twin, same elements", f"{summary.twin_sample_symbol_error_rate:.2g}"),
        ("symbol error rate, twin, all inputs", f"{summary.twin_symbol_error_rate:.2g} ({summary.twin_inputs} inputs)"),
        ("symbol error rate, bench without calibration",
         f"{summary.uncalibrated_symbol_error_rate:.3f} ({summary.uncalibrated_elements} elements)"),
        ("test accuracy, optical / float, mean",
         f"{100 * summary.accuracy_optical:.2f} / {100 * summary.accuracy_float:.2f} %"),
        ("test accuracy, optical / float, each seed", accuracies),
    ])  # fmt: skip


def _rows(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f'<tr><td>{escape(name)}</td><td class="n">{escape(value)}</td></tr>' for name, value in rows)
    return f"<table>{cells}</table>"
