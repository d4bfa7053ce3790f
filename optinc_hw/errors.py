"""The error tree.  Every message names what, where, the value and its unit, and the remedy."""


class OptincError(Exception):
    """Root of every error that optinc-hw raises on purpose."""


class ConfigurationError(OptincError):
    """A bench, station, chip or calibration file is missing, malformed or inconsistent."""


class LimitError(OptincError):
    """A requested value exceeds a hard limit; nothing was moved."""


class CalibrationError(OptincError):
    """A calibration is missing, does not fit the bench, or its data do not support a result."""


class MatrixError(OptincError, ValueError):
    """A matrix has the wrong shape, is not finite, or lacks a property (such as unitarity)."""


class NetworkError(OptincError, ValueError):
    """Codes, servers, bits or tiles do not match the optical network."""


class GradientError(OptincError, ValueError):
    """Gradients differ in shape or type, are not finite, or do not match the server count."""


class ScheduleError(OptincError, ValueError):
    """A schedule of an all-reduce cannot be built, loses or doubles a contribution, or uses a channel twice."""


class ComparisonError(OptincError, ValueError):
    """A workload, server, network or budget that schedules are compared with is unknown or out of range."""


class InstrumentError(OptincError):
    """An instrument or its link misbehaved; base of the four below."""


class LinkError(InstrumentError):
    """The link could not be opened, was refused, or broke."""


class LinkTimeoutError(LinkError):
    """No complete reply before the deadline; the link is dirty until drained or reopened."""


class ReplyError(InstrumentError):
    """A reply was short, late, extra or unparseable; the message holds its bytes."""


class DeviceError(InstrumentError):
    """The instrument itself reported an error (error queue or error line)."""


class IdentityError(InstrumentError):
    """The instrument at an address is not the one that the configuration names."""


class AggregationError(OptincError):
    """Ranks of a training job are set up differently, or one of them died or did not answer in time."""
