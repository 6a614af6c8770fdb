"""The folder of NumPy archives that holds public data sets: named by the user, or by ``ANTIPHON_DATA``."""

import os
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.errors import DataError

__all__ = ["FOLDER", "Arrays", "archive", "lacking", "named_folder", "needed_archive"]

Arrays = Mapping[str, Any]

FOLDER = "ANTIPHON_DATA"


def named_folder(folder: str | PathLike[str] | None = None) -> Path | None:
    """The folder that is given, or that the environment names; None if neither."""
    named = folder if folder is not None else os.environ.get(FOLDER) or None
    return None if named is None else Path(named)


def archive(folder: Path | None, stem: str) -> Arrays | None:
    """The arrays of the folder's archive; None if there is none."""
    path = None if folder is None else folder / f"{stem}.npz"
    if path is None or not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not a NumPy archive without pickles: {error}. Put a sound one there, or remove it."
        ) from error


def needed_archive(folder: Path | None, stem: str) -> Arrays:
    """The arrays of an archive that can be had nowhere else."""
    arrays = archive(folder, stem)
    if arrays is None:
        raise DataError(lacking(stem, folder))
    return arrays


def lacking(stem: str, folder: Path | None) -> str:
    """Where an archive was sought, and what to do."""
    where = (
        f"in {folder}" if folder is not None else f"anywhere: neither folder= nor {FOLDER} is set"
    )
    return (
        f"{stem}.npz was not found {where}. Put the archive into a folder and name it by folder= or the "
        f"environment variable {FOLDER}."
    )
