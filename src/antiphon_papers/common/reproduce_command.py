"""``antiphon reproduce``: the papers' figures and tables."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from antiphon.commands import Commands, command, whole
from antiphon.errors import PlanError

__all__ = ["add", "run"]


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "reproduce",
        "run the experiments behind the papers' figures and tables",
        "Finished configurations are kept: an interrupted run continues where it stopped. `all` continues "
        "after an experiment that fails, and then ends with exit code 1.",
        """
antiphon reproduce list
antiphon reproduce kan-sgd-noise-growth --preset ci --out results
antiphon reproduce all --preset full --jobs 8
antiphon reproduce cnn-figure-1 --variant r3-coarse
antiphon reproduce kan-sgd-figure-1 --cluster tcp://scheduler:8786""",
    )
    parser.add_argument("what", metavar="list|all|ID", help="what there is, everything, or one")
    parser.add_argument(
        "--preset", choices=("ci", "full"), default="full", help="ci takes seconds (full)"
    )
    parser.add_argument("--seeds", metavar="N", type=whole, help="repetitions (the preset's own)")
    parser.add_argument("--variant", metavar="NAME", help="of an experiment that has several")
    spread = parser.add_mutually_exclusive_group()
    spread.add_argument("--jobs", metavar="N", type=whole, default=1, help="processes (1)")
    spread.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, tcp://host:port")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("results"), help="of all results (results)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List or run experiments. The exit code is 1 if one of them failed."""
    from antiphon_papers.common.catalogue import experiments

    if options.what == "list":
        return _list(options)
    if options.what == "all" and options.variant:
        raise PlanError("--variant belongs to one experiment: name it in place of `all`.")
    if options.what != "all":
        _show([_reproduced(options.what, options)], options)
        return 0
    results = []
    for id in experiments():
        try:
            results.append(_reproduced(id, options))
        except Exception as error:  # the others may well run
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            results.append({"id": id, "preset": options.preset, "error": reason})
    _show(results, options)
    return 1 if any("error" in result for result in results) else 0


def _list(options: argparse.Namespace) -> int:
    from antiphon_papers.common.catalogue import experiment, experiments

    found = [experiment(id) for id in experiments()]
    if options.json:
        rows = [{"id": e.id, "title": e.title, "variants": [*e.variants]} for e in found]
        print(json.dumps(rows))
        return 0
    width = max(len(e.id) for e in found)
    for e in found:
        variants = f" (--variant {'|'.join(e.variants)})" if e.variants else ""
        print(f"{e.id:{width}}  {e.title}{variants}")
    return 0


def _reproduced(id: str, options: argparse.Namespace) -> dict[str, Any]:
    from antiphon_papers.common.reproduce import reproduce

    began = time.monotonic()
    name = id if options.variant is None else f"{id}-{options.variant}"
    found = reproduce(
        id,
        options.preset,
        options.out / name,
        jobs=options.jobs,
        seeds=options.seeds,
        cluster=options.cluster,
        variant=options.variant,
    )
    return {
        "id": id,
        "preset": options.preset,
        "folder": str(found.folder),
        "rows": len(found.rows),
        "computed": found.computed,
        "seconds": round(time.monotonic() - began, 1),
    }


def _show(results: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(results if options.what == "all" else results[0]))
        return
    from rich.console import Console
    from rich.table import Table

    view = Table("experiment", "run now", "rows", "seconds", box=None)
    view.add_column("page", overflow="fold")  # to be copied, so never cut
    for result in results:
        cells = (str(result.get(name, "")) for name in ("computed", "rows", "seconds"))
        failed = "error" in result
        view.add_row(
            result["id"],
            *cells,
            f"failed: {result['error']}" if failed else str(Path(result["folder"]) / "index.html"),
            style="red" if failed else "",
        )
    Console().print(view)
