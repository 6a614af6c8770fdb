"""Run an experiment: configurations in parallel, each kept as it is done, then tables and a figure."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, final

from antiphon.errors import DataError
from antiphon.progress import bar
from antiphon.writing import write_whole
from antiphon_papers.common.catalogue import experiment
from antiphon_papers.common.experiment import Experiment, Row, config_hash
from antiphon_papers.common.experiment_page import experiment_page
from antiphon_papers.common.workers import mapped

__all__ = ["Reproduction", "reproduce", "rows_of"]


@final
@dataclass(frozen=True)
class Reproduction:
    """What a run of an experiment has left.

    Attributes:
        id: Of the experiment.
        preset: "ci" or "full".
        rows: All rows, in the order of the configurations.
        summary: Means and standard errors.
        folder: Where ``rows.csv``, ``summary.csv``, ``figure.svg``, ``figure.png`` and ``index.html`` are.
        computed: Configurations that were run now; the others were found in the folder.
    """

    id: str
    preset: str
    rows: list[Row]
    summary: list[Row]
    folder: Path
    computed: int


def reproduce(
    id: str,
    preset: str = "full",
    out: str | PathLike[str] = "results",
    *,
    jobs: int = 1,
    seeds: int | None = None,
    cluster: str | None = None,
    variant: str | None = None,
) -> Reproduction:
    """Run all configurations of an experiment that are not in ``out`` yet, and write its results there.

    Args:
        id: One of `antiphon_papers.common.experiments`.
        preset: "ci" takes seconds; "full" is the experiment.
        out: Folder of the results. Rows of finished configurations are kept there by hash, so that a run
            that was interrupted continues where it stopped.
        jobs: Configurations that run at once, each in a process of its own with one thread.
        seeds: Repetitions in place of the preset's own number.
        cluster: Address of a Dask scheduler (extra ``cluster``): configurations run on its workers, which
            need this version of the library and no shared disk.
        variant: Of experiments that have several; their first unless given.

    Raises:
        RunError: If there is no cluster at the address, or it lost its workers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = reproduce("kan-sgd-noise-growth", "ci", folder)
        ...     sorted(path.name for path in found.folder.iterdir())
        ['figure.png', 'figure.svg', 'index.html', 'kept', 'rows.csv', 'summary.csv']
    """
    chosen, folder = experiment(id), Path(out)
    configs = chosen.configs(preset, seeds, variant)
    kept = folder / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    paths = [kept / f"{config_hash(id, config)}.json" for config in configs]
    left = [
        (config, path) for config, path in zip(configs, paths, strict=True) if not path.is_file()
    ]
    calls = [(id, config) for config, _ in left]
    with bar(f"{id}, {preset}") as progress:
        results = mapped(rows_of, calls, jobs=jobs, cluster=cluster)
        for done, (place, found) in enumerate(results, start=1):
            _keep(*left[place], found)
            progress(done, len(left))
    rows = [row for path in paths for row in _read(path)]
    summary = chosen.summary(rows)
    _publish(chosen, preset, rows, summary, folder)
    return Reproduction(id, preset, rows, summary, folder, len(left))


def rows_of(id: str, config: Any) -> list[Row]:
    """Run one configuration on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return experiment(id).run(config)
    finally:
        torch.set_num_threads(threads)


def _keep(config: Any, path: Path, rows: list[Row]) -> None:
    """Write the rows of one configuration, whole or not at all."""
    write_whole(path, json.dumps({"config": vars(config), "rows": rows}))


def _read(path: Path) -> list[Row]:
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return rows
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}. Remove it to run it again.") from error


def _publish(
    chosen: Experiment, preset: str, rows: list[Row], summary: list[Row], folder: Path
) -> None:
    """Tables, a figure, and a page with both."""
    _write_csv(folder / "rows.csv", rows)
    _write_csv(folder / "summary.csv", summary)
    _draw(chosen, rows, folder)
    page = experiment_page(
        id=chosen.id,
        title=chosen.title,
        description=chosen.description,
        preset=preset,
        rows=rows,
        summary=summary,
        figure_svg=(folder / "figure.svg").read_text(encoding="utf-8"),
    )
    write_whole(folder / "index.html", page)


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    """A table with every column that some row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _draw(chosen: Experiment, rows: Sequence[Row], folder: Path) -> None:
    """The figure without a date and with fixed identifiers: equal rows give equal files."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": chosen.id}):
        figure = chosen.plot(rows)
        figure.savefig(folder / "figure.svg", metadata={"Date": None})
        figure.savefig(folder / "figure.png", dpi=150)
