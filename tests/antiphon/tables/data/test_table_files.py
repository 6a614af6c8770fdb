import gzip
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.errors import DataError, PlanError
from antiphon.tables.data import Column, Schema, columns_of_file, read_table, split_target
from antiphon.tables.data.tables import numbers_of

CSV = 'age,sex,note\n41,f,"a, ""b""\nc"\n 7 ,m,\n'
ROWS = [["41", "f", 'a, "b"\nc'], [" 7 ", "m", ""]]
SECRET = "s3cr3t"


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path, read=read_table):
    with pytest.raises(DataError) as caught:
        read(path)
    error, text = caught.value, str(caught.value)
    assert str(path) in text and SECRET not in text
    while error is not None:  # nor do the errors behind it, which a debugger would show
        assert SECRET not in str(error.args)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", CSV.encode()),
        ("t.CSV", CSV.encode()),
        ("t.csv.gz", gzip.compress(CSV.encode())),
        ("t.tsv", CSV.replace(",", "\t").replace("a\t", "a,").encode()),
        ("t.tsv.gz", gzip.compress(CSV.replace(",", "\t").replace("a\t", "a,").encode())),
        ("bom.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("crlf.csv", CSV.replace("\n", "\r\n").replace('""\r\nc', '""\nc').encode()),
        ("blank.csv", CSV.replace(" 7 ", "\n\n 7 ").encode() + b"\n\n"),
        ("open.csv", CSV.encode()[:-1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_cells_of_a_text_come_out_as_they_are_written(tmp_path, name, content):
    path = write(tmp_path / name, content)
    assert columns_of_file(path) == ("age", "sex", "note")
    frame = read_table(path)
    assert frame.values.tolist() == ROWS and list(frame.columns) == ["age", "sex", "note"]
    assert all(dtype.kind == "O" for dtype in frame.dtypes)


def test_one_record_does_not_change_how_the_others_are_read(tmp_path):
    numbers = "a,b\n1,2\n007,1e3\n"
    alone = read_table(write(tmp_path / "alone.csv", numbers))
    for other in ("x,y\n", ",\n", "NA,1.5\n", "99999999999999999999,true\n"):
        beside = read_table(write(tmp_path / "beside.csv", numbers + other))
        assert beside[:2].equals(alone) and (beside.dtypes == alone.dtypes).all()


def test_a_long_file_is_read_across_the_places_where_reading_pauses(tmp_path):
    rows = [[str(i), f"text {i % 3}"] for i in range(5_000)]
    lines = "\n".join(["a,b", *map(",".join, rows)])
    assert read_table(write(tmp_path / "long.csv", lines)).values.tolist() == rows


def test_memory_is_not_more_than_twice_the_table(tmp_path):
    lines = "\n".join(["a,b,c", *(f"{i},{i / 7},{i % 5}" for i in range(50_000))])
    path = write(tmp_path / "big.csv", lines)
    read_table(path)
    tracemalloc.start()
    frame = read_table(path)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(frame) == 50_000 and peak < 2 * size


def test_the_header_is_read_without_the_records(tmp_path):
    path = write(tmp_path / "t.csv", b"a,b\n" + b"1,2\n" * 10_000 + b"\xff\n1,2,3\n")
    assert columns_of_file(path) == ("a", "b")


WRONG_TEXTS = {
    "empty": (b"", "is empty"),
    "blank": (b"\n\n", "is empty"),
    "header only": (b"a,b\n", "no record"),
    "duplicate names": (b"a,b,a\n1,2,3\n", r"several columns of one name: \['a'\]"),
    "unnamed column": (b",a\n0,s3cr3t\n", "column 1 .* has no name"),
    "no header": (b"41,0.5,7\n3,4,5\n", "first line .* seems to be a record"),
    "too few fields": (b"a,b\n1,2\n\ns3cr3t\n4,5\n", "line 4 .* has 1 field, .* names 2 columns"),
    "too many fields": (b'a,b\n"1\n1",s3cr3t\n1,2,3\n', "line 4 .* has 3 fields"),
    "cut in a quotation": (b'a,b\n1,2\n1,"s3cr3t', "line 3: a quotation mark"),
    "text after a quotation": (b'a,b\n1,"2"s3cr3t\n', "line 2: a quotation mark"),
    "latin-1": (b"a,b\n1,2\ns3cr3t,caf\xe9\n", "not UTF-8"),
    "latin-1 header": (b"caf\xe9,b\n1,2\n", "not UTF-8"),
    "utf-16": ("a,b\n1,s3cr3t\n".encode("utf-16"), "not UTF-8"),
    "utf-16 without mark": ("a,b\n1,s3cr3t\n".encode("utf-16-le"), "is no text: line 1"),
    "rubbish": (bytes(range(256)) * 40, "is no text|not UTF-8"),
    "semicolons": (b"a;b\n1;2\n", "by semicolons"),
    "a huge field": (b"a,b\n1," + b"9" * 200_000 + b"\n", "line 2: .* field too long"),
    "one line without end": (b"a" * (2**24 + 1), "is no text: line 1"),
}


@pytest.mark.parametrize("what", WRONG_TEXTS)
def test_a_text_that_is_no_table_is_refused_without_a_word_of_what_it_holds(tmp_path, what):
    content, words = WRONG_TEXTS[what]
    text = refusal(write(tmp_path / "wrong.csv", content))
    assert pd.Series([text]).str.contains(words, regex=True).all(), text


def test_columns_may_be_named_by_numbers_that_count_them(tmp_path):
    for header in ("0,1,2", "1,2,3", "2019,2020,place"):
        assert columns_of_file(write(tmp_path / "t.csv", f"{header}\n9,9,9\n"))


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_gzip_stream_that_is_cut_short_is_found(tmp_path, keep):
    noise = np.random.default_rng(0).integers(0, 10**9, 5_000)
    whole = gzip.compress("\n".join(["a", *map(str, noise)]).encode())
    path = write(tmp_path / "cut.csv.gz", whole[: int(keep * len(whole))])
    assert columns_of_file(path) == ("a",)
    assert "cut short or damaged" in refusal(path)


def test_a_gzip_stream_that_is_damaged_or_none_is_found(tmp_path):
    whole = bytearray(gzip.compress(CSV.encode() * 100))
    whole[-6] ^= 1  # the checksum
    assert "cut short or damaged" in refusal(write(tmp_path / "a.csv.gz", bytes(whole)))
    assert "cut short or damaged" in refusal(write(tmp_path / "b.csv.gz", CSV))


def test_a_file_that_is_not_there_a_folder_and_an_unknown_kind_are_refused(tmp_path):
    for read in (read_table, columns_of_file):
        assert "there is no file" in refusal(tmp_path / "none.csv", read)
        assert "is a folder" in refusal(tmp_path, read)
        text = refusal(write(tmp_path / "t.xlsx", "a,b\n1,2\n"), read)
        assert "unknown kind" in text and ".csv, .csv.gz, .tsv" in text and ".parquet, .npz" in text


def parquet(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet_keeps_the_types_that_it_declares(tmp_path):
    columns = {"n": pa.array([2**60 + 1, None]), "x": [0.5, None], "s": ["f", None]}
    path = parquet(tmp_path / "t.parquet", columns)
    assert columns_of_file(path) == ("n", "x", "s")
    frame = read_table(path)
    assert frame["n"].tolist() == [2**60 + 1, None]
    assert frame["x"][0] == 0.5 and np.isnan(frame["x"][1])
    schema = Schema(
        (Column("n", bounds=(0, 2**61)), Column("x", bounds=(0, 1)), Column("s", categories=["f"])),
        missing="middle",
    )
    assert schema.encode(frame)[:, 1:].tolist() == [[0, 1], [0, 0]]


def test_an_index_that_pandas_wrote_is_a_column_like_others(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 6], name="id")).to_parquet(path)
    assert columns_of_file(path) == tuple(read_table(path)) == ("a", "id")


def test_a_parquet_file_that_is_no_table_is_refused(tmp_path):
    whole = parquet(tmp_path / "t.parquet", {"a": np.arange(10_000)}).read_bytes()
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "headless": whole[100:],
        "damaged": whole[:200] + bytes(2_000) + whole[2_200:],
        "csv": CSV.encode(),
    }.items():
        path = write(tmp_path / f"{name}.parquet", content)
        assert "not a sound Parquet file" in refusal(path), name
    nested = parquet(tmp_path / "nested.parquet", {"a": [1], "b": [[1, 2]]})
    assert "columns of lists or records, ['b']" in refusal(nested)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    assert "several columns of one name" in refusal(tmp_path / "twice.parquet")
    empty = parquet(tmp_path / "empty.parquet", {"a": pa.array([], pa.int64())})
    assert "no record" in refusal(empty)


def test_parquet_without_its_extra_says_what_to_install(tmp_path, monkeypatch):
    path = parquet(tmp_path / "t.parquet", {"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r'pip install "antiphon\[parquet\]"'):
        read_table(path)


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_archives_hold_a_matrix_or_one_array_per_column(tmp_path):
    X, y = np.array([[1.5, 2], [3, 4]]), np.array(["no", "yes"])
    path = saved(tmp_path / "a.npz", X=X, y=y)
    assert columns_of_file(path) == tuple(read_table(path)) == ("x0", "x1", "y")
    assert read_table(path).values.tolist() == [[1.5, 2.0, "no"], [3.0, 4.0, "yes"]]
    path = saved(tmp_path / "b.npz", X=X, y=y, columns=np.array(["age", "income"]))
    assert columns_of_file(path) == tuple(read_table(path)) == ("age", "income", "y")
    path = saved(tmp_path / "c.npz", b=np.array([b"f", "é".encode()]), a=[1, 2])
    assert read_table(path)[["a", "b"]].values.tolist() == [[1, "f"], [2, "é"]]
    assert set(columns_of_file(path)) == {"a", "b"}
    path = saved(tmp_path / "d.npz", X=[1, 2], y=[3, 4])  # columns that are called so
    assert columns_of_file(path) == ("X", "y")


WRONG_ARCHIVES = {
    "objects": ({"a": np.array([{"s3cr3t": 1}, None], dtype=object)}, "holds Python objects"),
    "lengths": ({"a": [1, 2], "b": [1, 2, 3]}, r"arrays of different length, \[2, 3\]"),
    "lengths of X and y": ({"X": np.eye(3), "y": [1, 2]}, r"different length, \[2, 3\]"),
    "three dimensions": ({"a": np.zeros((2, 2, 2))}, r"\['a'\] should have one dimension"),
    "nothing": ({}, "holds no table"),
    "beside X": ({"X": np.eye(2), "z": [1, 2]}, r"holds \['z'\] beside X"),
    "names": ({"X": np.eye(2), "columns": ["a"]}, "names 1 columns for 2 in X"),
    "same names": ({"X": np.eye(2), "columns": ["a", "a"]}, "no two the same"),
    "a second y": ({"X": np.eye(2), "y": [1, 2], "columns": ["a", "y"]}, "none of them y"),
    "y of two": ({"X": np.eye(2), "y": np.eye(2)}, "y in .* should have one dimension"),
    "dates": ({"a": np.array(["2020-01-01"], dtype="datetime64[D]")}, "is of type datetime64"),
    "no rows": ({"a": np.zeros(0)}, "no record"),
}


@pytest.mark.parametrize("what", WRONG_ARCHIVES)
def test_an_archive_that_is_no_table_is_refused(tmp_path, what):
    arrays, words = WRONG_ARCHIVES[what]
    text = refusal(saved(tmp_path / "wrong.npz", **arrays))
    assert pd.Series([text]).str.contains(words, regex=True).all(), text


def test_an_archive_that_is_cut_short_or_none_is_refused(tmp_path):
    whole = saved(tmp_path / "t.npz", a=np.arange(10_000)).read_bytes()
    np.save(tmp_path / "single.npy", np.arange(3))
    for name, content in {
        "cut": whole[:5_000],
        "damaged": whole[:5_000] + bytes([whole[5_000] ^ 255]) + whole[5_001:],
        "csv": CSV.encode(),
        "single": (tmp_path / "single.npy").read_bytes(),
    }.items():
        assert "not a sound NumPy archive" in refusal(write(tmp_path / f"{name}.npz", content))


def test_texts_are_numbers_where_python_reads_them_as_such():
    texts = ["1.5", " 2 ", "1e3", "-inf", "", " ", "1,5", "1.000,5", "NA", "x", "0x10"]
    expected = [1.5, 2, 1000, -np.inf, *[np.nan] * 7]
    np.testing.assert_array_equal(numbers_of(np.array(texts, dtype=object)), expected)


def test_declared_numbers_are_found_among_texts_each_by_itself(tmp_path):
    schema = Schema((Column("k", categories=(1, 2.5, "x", 2**60 + 1)),))
    cells = ["1", "1.0", " 2.5", "x", str(2**60 + 1), str(2**60), "", "one", "nan"]
    frame = read_table(write(tmp_path / "t.csv", "\n".join(["k", *cells[:6], '""', *cells[7:]])))
    encoded = schema.encode(frame)
    assert [row.index(1.0) if 1.0 in row else None for row in encoded.tolist()] == [
        *(0, 0, 1, 2, 3, None, None, None, None)
    ]
    for place, cell in enumerate(cells):
        assert (schema.encode({"k": [cell]}) == encoded[place]).all()


def test_a_declared_text_is_found_before_the_number_that_it_writes():
    schema = Schema((Column("k", categories=(1, "1")),))
    assert schema.encode({"k": [1, "1", "1.0"]}).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert Schema((Column("k", categories=("1",)),)).encode({"k": ["1.0"]}).tolist() == [[0]]


def test_the_target_is_split_off_or_its_name_is_corrected():
    frame = pd.DataFrame({"age": ["1"], "income": ["2"], 3: ["4"]})
    X, y = split_target(frame, "income")
    assert list(X) == ["age", "3"] and y.tolist() == ["2"] and y.name == "income"
    with pytest.raises(PlanError, match=r"no column 'incom'; its columns are .* mean 'income'\?"):
        split_target(frame, "incom")
    with pytest.raises(PlanError, match=r"'zzz'; its columns are \['age', 'income', '3'\]\.$"):
        split_target(frame, "zzz")
    with pytest.raises(PlanError, match="nothing to learn from"):
        split_target(frame[["age"]], "age")
