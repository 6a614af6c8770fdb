"""What is publicly known about the columns of well-known data sets, independent of their records.

Bounds are round numbers from documentation and from what the numbers mean, never minima and maxima of the
records; values beyond them are clamped. Missing numbers go to the middle.
"""

from antiphon.tables.data.schema import Column, Schema

__all__ = ["adult", "breast_cancer", "credit_default", "pixels", "promoters"]

# From the documentation of the UCI repository; "?" stands for an answer not given.
_ADULT: dict[str, str] = {
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov "
    "Without-pay",
    "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate "
    "HS-grad Masters Preschool Prof-school Some-college",
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married "
    "Separated Widowed",
    "occupation": "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing "
    "Handlers-cleaners Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv "
    "Sales Tech-support Transport-moving",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native-country": "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador "
    "England France Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran "
    "Ireland Italy Jamaica Japan Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland "
    "Portugal Puerto-Rico Scotland South Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia",
}

# Upper bounds of means over a cell nucleus, in the order of the table: a nucleus measures at most some
# thirty units across its radius, hence its perimeter and area; the others are dimensionless by definition.
_NUCLEUS = {
    "radius": 30.0,
    "texture": 50.0,
    "perimeter": 200.0,
    "area": 3000.0,
    "smoothness": 0.25,
    "compactness": 0.5,
    "concavity": 0.5,
    "concave points": 0.25,
    "symmetry": 0.5,
    "fractal dimension": 0.2,
}


def breast_cancer() -> Schema:
    """Means, their standard errors (a tenth of the bound) and the worst nuclei (half as much again)."""
    columns = [Column(f"mean {name}", bounds=(0, high)) for name, high in _NUCLEUS.items()]
    columns += [Column(f"{name} error", bounds=(0, high / 10)) for name, high in _NUCLEUS.items()]
    columns += [Column(f"worst {name}", bounds=(0, 1.5 * high)) for name, high in _NUCLEUS.items()]
    return Schema(tuple(columns), missing="middle")


def adult() -> Schema:
    """The census of 1994 without ``fnlwgt``, which is a weight of the survey."""
    bounds = {
        "age": (16, 90),  # asked from 16 years on, and cut at 90
        "education-num": (1, 16),
        "capital-gain": (0, 20_000),
        "capital-loss": (0, 5_000),
        "hours-per-week": (0, 99),
    }
    order = (
        "age", "workclass", "education", "education-num", "marital-status", "occupation",
        "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
    )  # fmt: skip
    columns = (
        Column(name, bounds=bounds[name])
        if name in bounds
        else Column(name, categories=_ADULT[name].split())
        for name in order
    )
    return Schema(tuple(columns), missing="middle")


def credit_default() -> Schema:
    """Amounts are in New Taiwan dollars of 2005; limits of credit end at a million."""
    bills = [Column(f"BILL_AMT{i}", bounds=(-50_000, 500_000)) for i in range(1, 7)]
    paid = [Column(f"PAY_AMT{i}", bounds=(0, 100_000)) for i in range(1, 7)]
    # Months of delay, from nothing used (-2) to nine.
    delays = [Column(f"PAY_{i}", bounds=(-2, 9)) for i in (0, 2, 3, 4, 5, 6)]
    columns = (
        Column("LIMIT_BAL", bounds=(0, 1_000_000)),
        Column("SEX", categories=(1, 2)),
        Column("EDUCATION", categories=tuple(range(7))),
        Column("MARRIAGE", categories=tuple(range(4))),
        Column("AGE", bounds=(18, 80)),
        *delays,
        *bills,
        *paid,
    )
    return Schema(columns, missing="middle")


def pixels(count: int) -> Schema:
    """Grey values of one byte."""
    return Schema(tuple(Column(f"pixel{i}", bounds=(0, 255)) for i in range(count)))


def promoters(length: int) -> Schema:
    """One base at each place; an unknown one is a row of zeros."""
    bases = ("A", "C", "G", "T")
    return Schema(tuple(Column(f"base{i}", categories=bases) for i in range(length)))
