"""The demo: the main job end to end on a simulated bench, with a report."""

from optinc_hw._shadow import check_packages_not_shadowed

check_packages_not_shadowed()

from optinc_hw.demo._folder import ReportFolder  # noqa: E402 - nothing of ours may be imported before the check
from optinc_hw.demo._run import run_demo  # noqa: E402
from optinc_hw.demo._summary import Criterion, DemoSettings, DemoSummary  # noqa: E402
from optinc_hw.demo._training import TrainingComparison, TrainingRun, compare_training  # noqa: E402

__all__ = [
    "Criterion",
    "DemoSettings",
    "DemoSummary",
    "ReportFolder",
    "TrainingComparison",
    "TrainingRun",
    "compare_training",
    "run_demo",
]
