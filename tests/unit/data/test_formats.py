"""The presets, on made-up lines and on the real samples."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow.data.batch import Batch, concatenated
from hotrow.data.config import DataConfig, open_data, open_source
from hotrow.data.decode import Decoder
from hotrow.data.keys import MISSING, Keyspace
from hotrow.data.source import Source
from hotrow.errors import ConfigError, InputError
from oracles.kernels import hash_bytes

Sample = Callable[[str], Path]


def batch_of(source: Source, labels: bool = True) -> Batch:
    decoder = Decoder(source.schema)
    return concatenated([decoder.batch(record, labels) for record in source.read()])


def one_valued(batch: Batch, feature: str) -> list[int]:
    part = next(part for part in batch.parts if part.kind == "one")
    return [int(key) for key in part.keys.reshape(len(batch), -1)[:, part.features.index(feature)]]


def labels_of(batch: Batch) -> list[float]:
    assert batch.labels is not None
    return [float(label) for label in batch.labels[:, 0]]


def write(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


def criteo_line(label: str, number: str, token: str) -> str:
    return "\t".join([label, *[number] * 13, *[token] * 26]) + "\n"


def test_criteo_has_13_numbers_by_log1p_and_26_tokens_as_texts(tmp_path: Path) -> None:
    lines = criteo_line("0", "1", "05db9164") + criteo_line("1", "", "12345678") + criteo_line("0", "-2", "")
    train = write(tmp_path / "train.txt", lines)
    source = open_data(DataConfig(format="criteo", train=train)).train
    batch = batch_of(source)
    assert labels_of(batch) == [0, 1, 0]
    expected = [np.log(2), 0, -np.log(3)]
    np.testing.assert_allclose(batch.numbers, np.array([expected] * 13).T, rtol=1e-6)
    keys = Keyspace(source.schema).keys("C3", ["05db9164", "12345678", None]).tolist()
    assert one_valued(batch, "C3") == keys
    assert keys[1] % 2**64 == hash_bytes(b"12345678") ^ hash_bytes(b"C3")  # no number, though it looks like one
    assert len(batch.parts[0].features) == 26
    assert batch.counts == {"missing_ids": 26, "missing_numbers": 13, "cut_sequences": 0}


def test_criteos_numbers_may_become_buckets(tmp_path: Path) -> None:
    train = write(tmp_path / "train.txt", criteo_line("0", "21", "a") + criteo_line("0", "22", "a"))
    source = open_data(DataConfig(format="criteo", train=train, transform="bucket")).train
    batch = batch_of(source)
    assert batch.numbers.shape == (2, 0)
    assert batch.parts[0].features[:2] == ("I1", "I2")
    assert len(batch.parts[0].features) == 39
    first, second = one_valued(batch, "I1")
    assert first == second  # floor(log(21) ** 2) is that of 22


def test_criteos_test_file_has_no_label(tmp_path: Path) -> None:
    path = write(tmp_path / "test.txt", criteo_line("0", "1", "a").partition("\t")[2])
    config = DataConfig(format="criteo", train=path)
    batch = batch_of(open_source(config, path, labels=False), labels=False)
    assert (len(batch), batch.labels) == (1, None)
    with pytest.raises(InputError, match="39 columns instead of 40"):
        list(open_source(config, path).read())


AVAZU = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
)


def avazu_line(click: str, hour: str) -> str:
    return f"100,{click},{hour}," + ",".join(["1005", "0", *["1fbe01fe"] * 9, "1", "2", *["15706"] * 8]) + "\n"


def test_avazus_hour_is_the_time_and_its_hour_of_the_day_an_id(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", AVAZU + avazu_line("0", "14102100") + avazu_line("1", "14103023"))
    source = open_data(DataConfig(format="avazu", train=train)).train
    batch = batch_of(source)
    assert labels_of(batch) == [0, 1]
    assert batch.times is not None
    assert batch.times.tolist() == [1413849600, 1414710000]
    assert one_valued(batch, "hour_of_day") == Keyspace(source.schema).keys("hour_of_day", [0, 23]).tolist()
    assert len(batch.parts[0].features) == 22
    assert not {"id", "click", "hour"} & set(batch.parts[0].features)
    assert batch.numbers.shape == (2, 0)


def test_avazu_lines_with_another_hour_are_malformed_and_test_files_have_no_click(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", AVAZU + avazu_line("0", "soon") + avazu_line("1", "14103023"))
    config = DataConfig(format="avazu", train=path)
    source = open_data(config).train
    assert len(batch_of(source)) == 1
    assert source.trouble.first[0].reason == "hour 'soon' cannot be read as a time (format '%y%m%d%H')"
    bare = write(
        tmp_path / "b.csv", (AVAZU + avazu_line("1", "14103023")).replace("click,", "").replace("100,1,", "100,")
    )
    assert len(batch_of(open_source(config, bare, labels=False), labels=False)) == 1


RAW = "user,time_stamp,adgroup_id,pid,nonclk,clk\n"
ADS = "adgroup_id,cate_id,campaign_id,customer,brand,price\n"
PROFILES = (
    "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,occupation,"
    "new_user_class_level \n"
)


@pytest.fixture
def taobao(tmp_path: Path) -> DataConfig:
    rows = "581738,1494137644,1,430548_1007,1,0\n9,1494137645,2,430548_1007,0,1\n7,1494137646,3,430539_1007,0,1\n"
    write(tmp_path / "raw_sample.csv", RAW + rows)
    write(tmp_path / "ad_feature.csv", ADS + "2,6261,83237,1,NULL,99.0\n1,9025,108570,1,95471,0.0\n")
    write(tmp_path / "user_profile.csv", PROFILES + "581738,0,5,2,5,,3,0,3\n7,1,2,1,2,1,3,1,\n")
    names = {"train": "raw_sample.csv", "ads": "ad_feature.csv", "users": "user_profile.csv"}
    return DataConfig(format="taobao", **{key: str(tmp_path / name) for key, name in names.items()})


def test_taobao_rows_are_joined_with_their_ads_and_users(taobao: DataConfig) -> None:
    source = open_data(taobao).train
    batch = batch_of(source)
    assert labels_of(batch) == [0, 1, 1]
    space = Keyspace(source.schema)
    expected = {
        "user": [581738, 9, 7],
        "pid": ["430548_1007", "430548_1007", "430539_1007"],
        "cate_id": [9025, 6261, None],
        "brand": [95471, None, None],
        "cms_group_id": [5, None, 2],  # user 9 is unknown
        "pvalue_level": [None, None, 1],
        "new_user_class_level": [3, None, None],
    }
    for feature, ids in expected.items():
        assert one_valued(batch, feature) == space.keys(feature, ids).tolist(), feature
    assert batch.numbers[:, 0].tolist() == pytest.approx([0.0, np.log(100.0), 0.0])
    assert batch.counts["missing_numbers"] == 1
    assert batch.groups is not None
    assert batch.groups.tolist() == [581738, 9, 7]
    assert batch.times is not None
    assert batch.times[0] == 1494137644


def test_taobao_can_be_read_from_any_row_on_and_again(taobao: DataConfig) -> None:
    source = open_data(taobao).train
    whole = [row for record in source.read() for row in record.to_pylist()]
    assert repr([row for record in source.read(2) for row in record.to_pylist()]) == repr(whole[2:])
    assert source.rows() is None


def test_a_missing_key_has_no_attributes(taobao: DataConfig, tmp_path: Path) -> None:
    write(tmp_path / "raw_sample.csv", RAW + ",1494137644,1,430548_1007,1,0\n")
    write(tmp_path / "user_profile.csv", PROFILES + ",0,5,2,5,,3,0,3\n")
    source = open_data(taobao).train
    assert one_valued(batch_of(source), "cms_group_id") == Keyspace(source.schema).keys("cms_group_id", [None]).tolist()


def test_a_key_that_stands_twice_in_a_small_file_is_told(taobao: DataConfig, tmp_path: Path) -> None:
    write(tmp_path / "ad_feature.csv", ADS + "2,6261,83237,1,NULL,99.0\n2,9025,108570,1,95471,0.0\n")
    with pytest.raises(InputError, match=r"ad_feature\.csv: adgroup_id '2' occurs twice"):
        open_data(taobao)


def test_malformed_lines_of_the_small_files_are_counted_too(taobao: DataConfig, tmp_path: Path) -> None:
    write(tmp_path / "ad_feature.csv", ADS + "2,6261,83237,1,NULL,cheap\n1,9025,108570,1,95471,0.0\n")
    source = open_data(taobao).train
    assert [(fault.line, fault.reason) for fault in source.trouble.first] == [(2, "price 'cheap' is no number")]
    assert len(batch_of(source)) == 3


RATINGS = [("1", "10", "5", "300"), ("2", "20", "3", "100"), ("1", "20", "4", "200"), ("3", "30", "1", "200")]


@pytest.fixture(params=["recbole", "100k", "1m"])
def movielens(request: pytest.FixtureRequest, tmp_path: Path) -> DataConfig:
    """The same three films, written in three ways; user 3 and film 30 are unknown."""

    def lines(delimiter: str, rows: list[Any]) -> str:
        return "".join(delimiter.join(row) + "\n" for row in rows)

    if request.param == "recbole":
        head = {"inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"}
        files = {
            "train": ("ml.inter.gz", head["inter"] + lines("\t", RATINGS)),
            "users": (
                "ml.user",
                "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
                "1\t24\tM\tmason\t85711\n2\t53\tF\tother\t94043\n",
            ),
            "items": (
                "ml.item",
                "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
                '10\tAn "odd" one\t1995\tDrama War\n20\tAnother\t1994\tunknown\n',
            ),
        }
    elif request.param == "100k":
        flags = ["0"] * 19
        war, none = flags.copy(), flags.copy()
        war[8] = war[17] = none[0] = "1"
        films = [
            ["10", "Amélie (1995)", "01-Jan-1995", "", "http", *war],
            ["20", "B (1994)", "01-Jan-1994", "", "", *none],
        ]
        files = {
            "train": ("u.data", lines("\t", RATINGS)),
            "users": ("u.user", "1|24|M|mason|85711\n2|53|F|other|94043\n"),
            "items": ("u.item", lines("|", films)),
        }
    else:
        files = {
            "train": ("ratings.dat", lines("::", RATINGS)),
            "users": ("users.dat", "1::M::24::mason::85711\n2::F::53::other::94043\n"),
            "items": ("movies.dat", "10::Amélie: one (1995)::Drama|War\n20::B (1994)::unknown\n"),
        }
    for name, text in files.values():
        data = text.encode("utf-8" if request.param == "recbole" else "latin-1")
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return DataConfig(format="movielens", **{key: str(tmp_path / name) for key, (name, _) in files.items()})


def test_movielens_in_every_edition_gives_the_same_rows_by_time(movielens: DataConfig) -> None:
    source = open_data(movielens).train
    batch = batch_of(source)
    assert source.rows() == 4
    assert labels_of(batch) == [0, 1, 0, 1]
    assert batch.times is not None
    assert batch.times.tolist() == [100, 200, 200, 300]
    space = Keyspace(source.schema)
    expected = {
        "user_id": [2, 1, 3, 1],
        "item_id": [20, 20, 30, 10],
        "age": [53, 24, None, 24],
        "gender": ["F", "M", None, "M"],
        "occupation": ["other", "mason", None, "mason"],
        "zip_code": [94043, 85711, None, 85711],
        "release_year": [1994, 1994, None, 1995],
    }
    for feature, ids in expected.items():
        assert one_valued(batch, feature) == space.keys(feature, ids).tolist(), feature
    genres = batch.parts[1]
    assert genres.features == ("genres",)
    assert genres.bounds is not None
    assert genres.bounds.tolist() == [0, 1, 2, 2, 4]
    assert genres.keys.tolist() == space.keys("genres", ["unknown", "unknown", "Drama", "War"]).tolist()
    assert batch.groups is not None
    assert batch.groups.tolist() == [2, 1, 3, 1]


def test_movielens_ratings_stand_alone_too(movielens: DataConfig) -> None:
    alone = DataConfig(format="movielens", train=movielens.train)
    source = open_data(alone).train
    assert [feature.name for feature in source.schema.ids] == ["user_id", "item_id"]
    assert [row["item_id"] for record in source.read(1) for row in record.to_pylist()] == ["20", "30", "10"]


def test_a_ratings_file_of_another_name_is_told(tmp_path: Path) -> None:
    train = write(tmp_path / "stars.csv", "1,2,3,4\n")
    with pytest.raises(
        ConfigError, match=r"stars\.csv': a MovieLens ratings file is named NAME\.inter, u\.data or rat"
    ):
        open_data(DataConfig(format="movielens", train=train))


def test_the_real_criteo_sample(data_dir: Sample) -> None:
    folder = data_dir("criteo_dac80k")
    batch = batch_of(open_data(DataConfig(format="criteo", train=folder / "criteo_dac80k.tsv.gz")).train)
    assert len(batch) == 80_000
    assert sum(labels_of(batch)) / 80_000 == pytest.approx(0.224, abs=0.0005)
    distinct = [484, 491, 35103, 20749, 136, 11, 7220, 235, 3, 9833, 3674, 33152, 2732, 26, 4804, 27920, 9, 2373, 1220]
    distinct += [3, 31062, 12, 14, 10539, 48, 8163]
    keys = batch.parts[0].keys.reshape(80_000, 26)
    space = Keyspace(open_data(DataConfig(format="criteo", train=folder / "criteo_dac80k.tsv.gz")).schema)
    for place, expected in enumerate(distinct):
        gone = np.uint64(MISSING ^ space.salt(f"C{place + 1}")).view(np.int64)
        assert len(np.unique(keys[keys[:, place] != gone, place])) == expected


def test_the_raw_criteo_rows_are_the_first_of_the_sample(data_dir: Sample) -> None:
    folder = data_dir("criteo_dac80k")
    raw = batch_of(open_data(DataConfig(format="criteo", train=folder / "criteo_raw_first8000.tsv.gz")).train)
    whole = batch_of(open_data(DataConfig(format="criteo", train=folder / "criteo_dac80k.tsv.gz")).train)
    assert len(raw) == 8000
    assert labels_of(raw) == labels_of(whole)[:8000]
    assert np.array_equal(raw.numbers, whole.numbers[:8000])


def test_the_real_avazu_sample(data_dir: Sample) -> None:
    batch = batch_of(open_data(DataConfig(format="avazu", train=data_dir("avazu_9k") / "avazu_9k.csv.gz")).train)
    assert len(batch) == 8999
    assert sum(labels_of(batch)) == 1563
    assert batch.times is not None
    assert set(batch.times.tolist()) == {1413849600}
    assert batch.counts["missing_ids"] == 0


def test_the_real_movielens_sample(data_dir: Sample) -> None:
    folder = data_dir("movielens_100k")
    paths = {"train": "ml-100k.inter.gz", "users": "ml-100k.user.gz", "items": "ml-100k.item.gz"}
    source = open_data(DataConfig(format="movielens", **{key: folder / name for key, name in paths.items()})).train
    batch = batch_of(source)
    assert len(batch) == source.rows() == 100_000
    assert sum(labels_of(batch)) == 55_375
    assert batch.times is not None
    assert len(np.unique(batch.times // 86_400)) == 213
    assert (np.diff(batch.times) >= 0).all()
    assert len(set(one_valued(batch, "user_id"))) == 943
    assert len(set(one_valued(batch, "item_id"))) == 1682
    assert source.trouble.malformed == 0


def test_the_real_talkingdata_sample_by_a_schema(data_dir: Sample) -> None:
    ids = {"ip": 34857, "app": 161, "device": 100, "os": 130, "channel": 161}
    config = DataConfig(
        train=data_dir("talkingdata_100k") / "train_sample.csv.gz",
        label="is_attributed",
        ids=list(ids),
        time="click_time",
    )
    source = open_data(config).train
    batch = batch_of(source)
    assert len(batch) == 100_000
    assert sum(labels_of(batch)) == 227
    for feature, distinct in ids.items():
        assert len(set(one_valued(batch, feature))) == distinct
    assert batch.times is not None
    days, counts = np.unique(batch.times // 86_400, return_counts=True)
    assert counts.tolist() == [5011, 32393, 34035, 28561]
    assert days[0] == 17476  # 2017-11-06


def test_the_real_frappe_sample_with_carriage_returns(data_dir: Sample) -> None:
    folder = data_dir("frappe_x1")
    ids = ["user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city"]
    paths = {"train": "train_rebuilt.csv.gz", "valid": "valid.csv.gz", "test": "test.csv.gz"}
    data = open_data(DataConfig(**{key: folder / name for key, name in paths.items()}, label="label", ids=ids))
    expected = {"train": (202_027, 67_604), "valid": (57_722, 19_063), "test": (28_860, 9_536)}
    for name, (count, positive) in expected.items():
        batch = batch_of(getattr(data, name))
        assert (len(batch), sum(labels_of(batch))) == (count, positive)
        assert batch.counts["missing_ids"] == 0
    assert data.train.trouble.malformed == 0
