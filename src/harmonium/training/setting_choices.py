"""Settings whose values come from a registry, compositions and losses: new ones need no entry here."""

from harmonium.config.settings import Config, Setting, describe
from harmonium.model.composition import Composition, find_composition
from harmonium.training.losses import find_loss, loss_help


def describe_settings() -> list[Setting]:
    """Every setting with its allowed values and its meaning, as `harmonium train --settings` lists them."""
    losses = loss_help()
    meanings = " ".join(f"{name}: {meaning}" for name, meaning in losses.items())
    choices = {"model.composition": "|".join(Composition.registry), "train.loss": "|".join(losses)}
    help = {"train.loss": f" {meanings}"}
    return [
        row._replace(values=choices.get(row.key, row.values), help=row.help + help.get(row.key, ""))
        for row in describe()
    ]


def check_choices(config: Config) -> None:
    """Raise an error, before any work, for a composition or a loss that does not exist."""
    find_composition(config.model.composition)
    find_loss(config.train.loss)
