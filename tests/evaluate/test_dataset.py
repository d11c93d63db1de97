"""Data sets in each form, and what a reader says of data that do not fit."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.evaluate.dataset import Preparation, read_dataset
from emitc.evaluate.session import TensorInfo

IMAGE = TensorInfo("image", "int8", (1, 4, 6, 1), 1 / 255, -128)
VECTOR = TensorInfo("x", "float32", (1, 3))
RNG = np.random.default_rng(4)
PIXELS = RNG.integers(0, 256, (5, 4, 6, 1)).astype(np.uint8)
CODES = (PIXELS.astype(np.int16) - 128).astype(np.int8)
UNIT = Preparation(scale=1 / 255)


def test_an_archive_of_pixels_and_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", allow_pickle=False, X=PIXELS, y=np.arange(5))
    found = read_dataset(tmp_path / "d.npz", [IMAGE], UNIT)
    assert (np.concatenate([x for (x,) in found.samples]) == CODES).all()
    assert found.labels is not None and found.labels.tolist() == [0, 1, 2, 3, 4]
    assert found.outside == 0
    assert read_dataset(tmp_path / "d.npz", [IMAGE]).outside > 0.9  # nobody has said that 255 is 1


def test_codes_are_taken_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", allow_pickle=False, **{f"in0_{k}": CODES[k : k + 1] for k in range(5)})
    found = read_dataset(tmp_path / "d.npz", [IMAGE])
    assert found.labels is None
    assert (np.concatenate([x for (x,) in found.samples]) == CODES).all()
    np.save(tmp_path / "d.npy", CODES)
    assert (np.concatenate([x for (x,) in read_dataset(tmp_path / "d.npy", [IMAGE]).samples]) == CODES).all()


def test_inputs_by_name(tmp_path: Path) -> None:
    second = TensorInfo("z", "float32", (1, 2))
    np.savez(
        tmp_path / "d.npz",
        allow_pickle=False,
        x=RNG.normal(size=(4, 3)),
        z=RNG.normal(size=(4, 2)),
        labels=[0, 1, 1, 0],
    )
    found = read_dataset(tmp_path / "d.npz", [VECTOR, second])
    assert len(found.samples) == 4 and [x.shape for x in found.samples[0]] == [(1, 3), (1, 2)]
    assert found.labels is not None and len(found.labels) == 4


@pytest.mark.parametrize("head", ["a,b,c,label\n", ""])
def test_a_table(tmp_path: Path, head: str) -> None:
    (tmp_path / "d.csv").write_text(head + "1,2,3,0\n4,5.5,6,2\n", encoding="utf-8")
    found = read_dataset(tmp_path / "d.csv", [VECTOR])
    assert [x[0].tolist() for x in found.samples] == [[[1, 2, 3]], [[4, 5.5, 6]]]
    assert found.labels is not None and found.labels.tolist() == [0, 2]


def test_a_label_in_any_column_that_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("y,a,b,c\n2,1,2,3\n", encoding="utf-8")
    found = read_dataset(tmp_path / "d.csv", [VECTOR])
    assert found.samples[0][0].tolist() == [[1, 2, 3]]
    assert found.labels is not None and found.labels.tolist() == [2]


@pytest.mark.parametrize("shape", [(1, 4, 6, 1), (1, 4, 6, 3), (1, 3, 4, 6)])
def test_a_folder_of_images_for_each_class(tmp_path: Path, shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra emitc[data] is not installed")
    pixels = RNG.integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)
    for name, each in zip(("cat", "dog"), pixels, strict=True):
        (tmp_path / name).mkdir()
        image.fromarray(each).save(tmp_path / name / "1.png")
    found = read_dataset(tmp_path, [TensorInfo("image", "float32", shape)], UNIT)
    assert found.classes == ("cat", "dog") and found.names == ("cat/1.png", "dog/1.png")
    assert found.labels is not None and found.labels.tolist() == [0, 1]
    (first,) = found.samples[0]
    expected = pixels[0] if shape[3] == 3 else pixels[0].transpose(2, 0, 1)
    if 3 in (shape[1], shape[3]):
        assert np.allclose(first[0], expected / 255)
    assert first.shape == shape and 0 <= first.min() <= first.max() <= 1


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_folder_of_sounds_for_each_class(tmp_path: Path, width: int) -> None:
    tone = np.array([0.5, -0.5, 0.25, -1.0])
    codes = 128 + 128 * tone if width == 1 else tone * 2.0 ** (8 * width - 1)
    (tmp_path / "on").mkdir()
    with wave.open(str(tmp_path / "on" / "a.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(width)
        file.setframerate(16000)
        both = np.stack([codes, np.zeros(4)], axis=1).astype(f"<{'u' if width == 1 else 'i'}{width}")
        file.writeframes(both.tobytes())
    found = read_dataset(tmp_path, [TensorInfo("sound", "float32", (1, 6))])
    assert found.samples[0][0].tolist() == [[*tone, 0, 0]]
    assert read_dataset(tmp_path, [TensorInfo("sound", "float32", (1, 2))]).samples[0][0].tolist() == [[0.5, -0.5]]


def test_the_layout_of_images_can_be_the_other_one(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", RNG.normal(size=(2, 4, 6, 3)).astype(np.float32))
    values = np.load(tmp_path / "d.npy")
    found = read_dataset(tmp_path / "d.npy", [TensorInfo("x", "float32", (1, 3, 4, 6))], Preparation(layout="nhwc"))
    assert (found.samples[1][0][0] == values[1].transpose(2, 0, 1)).all()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("d.txt", b"1", "files of type '.txt' are not read"),
        ("d.npz", b"PK", "no .npz archive"),
        ("d.npy", b"\x93NUMPY\x01\x00\x02\x00{}", ""),
        ("d.csv", b"1,2\n3,4\n", "2 rows of 2 columns"),
        ("d.csv", b"a,b\n", "0 rows"),
        ("d.csv", b"1,2,3\n1,2,x\n", "2 rows of 3 columns"),
        ("d.csv", b"1,nan,3\n", "no finite number"),
        ("d.csv", b"\xff\xfe\x00", ""),
        ("d.csv", b"", "0 rows"),
    ],
)
def test_data_that_cannot_be_used_say_why(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EmitcError) as caught:
        read_dataset(tmp_path / name, [VECTOR])
    assert why in caught.value.why and "--data" in str(caught.value.where)


def test_what_was_found_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", allow_pickle=False, a=np.zeros((2, 3), np.int16), b=np.zeros(4))
    with pytest.raises(EmitcError, match=r"found: a int16\[2, 3\]; b float64\[4\]"):
        read_dataset(tmp_path / "d.npz", [VECTOR])
    (tmp_path / "cat").mkdir()
    with pytest.raises(EmitcError, match="1 folders, 0 files"):
        read_dataset(tmp_path, [IMAGE])
    np.savez(tmp_path / "d.npz", allow_pickle=False, X=np.zeros((2, 3)), y=np.zeros(3))
    with pytest.raises(EmitcError, match="2 samples and 3 labels"):
        read_dataset(tmp_path / "d.npz", [VECTOR])


def test_a_damaged_image_and_sound_are_named(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="the extra emitc[data] is not installed")
    for name, info in (("a.png", IMAGE), ("a.wav", VECTOR)):
        folder = tmp_path / name[2:] / "one"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(b"nothing of the kind")
        with pytest.raises(EmitcError, match=name):
            read_dataset(folder.parent, [info])
