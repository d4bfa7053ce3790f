"""What the training examples share: data, models, tasks, ways of averaging, and the training loop."""

from training.averaging import TABLE_II, Averaging, ErrorStatistics, InjectedErrors, twin_answers
from training.data import Samples, Split, cifar_100, digits, documentation, text_folder
from training.loop import Outcome, process_group, train
from training.models import LanguageModel, ResNet, perceptron
from training.tasks import Task, digits_perceptron, digits_resnet, images_resnet, language_model

__all__ = [
    "TABLE_II",
    "Averaging",
    "ErrorStatistics",
    "InjectedErrors",
    "LanguageModel",
    "Outcome",
    "ResNet",
    "Samples",
    "Split",
    "Task",
    "cifar_100",
    "digits",
    "digits_perceptron",
    "digits_resnet",
    "documentation",
    "images_resnet",
    "language_model",
    "perceptron",
    "process_group",
    "text_folder",
    "train",
    "twin_answers",
]
