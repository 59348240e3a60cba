# SPDX-License-Identifier: Apache-2.0
"""Each mistake and its text: errors/NAME.yaml gives exactly errors/NAME.txt."""

from pathlib import Path

import pytest

from topologies.model.load import (
    TopologyErrors,
    bundled,
    find,
    load,
)
from topologies.model.network import Network
from topologies.tests.networks import two_sites

ERRORS = Path(__file__).parent / "errors"
CASES = sorted(path.stem for path in ERRORS.glob("*.yaml"))


def load_small(tmp_path: Path, impairment: str = "delay_ms: 0") -> Network:
    path = tmp_path / "small.yaml"
    path.write_text(two_sites(impairment))
    return load(path)


def errors_of(path: Path, **parameters: int | str) -> list[str]:
    with pytest.raises(TopologyErrors) as caught:
        load(path, parameters)
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.errors]
    return str(caught.value).splitlines()


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ERRORS)  # the texts name the file as given
    expected = Path(f"{case}.txt").read_text()
    assert "\n".join(errors_of(Path(f"{case}.yaml"))) + "\n" == expected


def test_golden_pairs_are_complete() -> None:
    assert len(CASES) >= 20
    assert sorted(path.stem for path in ERRORS.glob("*.txt")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_each_line_has_place_found_and_valid(case: str) -> None:
    length = len((ERRORS / f"{case}.yaml").read_text().splitlines())
    for line in (ERRORS / f"{case}.txt").read_text().splitlines():
        file, number, rest = line.split(":", 2)
        assert file == f"{case}.yaml"
        assert 1 <= int(number) <= length
        assert rest.startswith(" found ")
        assert "; valid: " in rest


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, "receivers=0"),
        (65, "receivers=65"),
        (-1, "receivers=-1"),
        ("0", "receivers=0"),
        ("many", "receivers=many"),
        ("8.0", "receivers=8.0"),
        ("", "receivers="),
        ("-3", "receivers=-3"),
        ("٣", "receivers=٣"),
    ],
)
def test_parameter_out_of_range(value: int | str, found: str) -> None:
    (error,) = errors_of(find("geni5"), receivers=value)
    assert f"found {found}; valid: " in error
    assert error.endswith("1 to 64")


def test_unknown_parameter() -> None:
    (error,) = errors_of(find("geni5"), recievers=8)
    assert error.endswith(
        "found parameter 'recievers'; valid: receivers (did you mean 'receivers'?)"
    )
    (error,) = errors_of(find("drfsm8"), receivers=8)
    assert error.endswith("found parameter 'receivers'; valid: lanes")


def test_unknown_topology() -> None:
    with pytest.raises(TopologyErrors) as caught:
        find("genni5")
    assert str(caught.value) == (
        "topology: found 'genni5'; valid: bottleneck, drfsm8, geni5, twocores, or the path of a "
        ".yaml file (did you mean 'geni5'?)"
    )


def test_bundled_topologies_are_found() -> None:
    assert bundled() == ("bottleneck", "drfsm8", "geni5", "twocores")
    assert find("geni5").name == "geni5.yaml"


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path / "none.yaml")
    assert "found no readable file (No such file or directory); valid: a YAML file" in error
    (error,) = errors_of(tmp_path)
    assert "found no readable file (Is a directory)" in error


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"name: x\ndescription: \xff\n")
    (error,) = errors_of(path)
    assert error == f"{path}:2: found byte 0xff, which is not UTF-8; valid: UTF-8 text"


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]\n",  # contains itself
        pytest.param(
            "a: &a [1, 1]\nb: &b [" + "*a, " * 9 + "*a]\nc: [" + "*b, " * 99999 + "*b]\n",
            marks=pytest.mark.slow,
        ),
        pytest.param("[" * 5000, marks=pytest.mark.slow),
        "? [1, 2]\n: 3\n",
        "a: !!int x\n",
        "a: !!python/object:os.system x\n",
        "a: 2026-13-45\n",
        "--- 1\n--- 2\n",
        "nodes: [1]\nlinks: {a: 1}\nsegments: 3\ndomains: null\n",
        "nodes: {1: 2, a: {kind: 7}, b: {kind: []}}\nlinks: [1, [], null, {a: []}]\n",
        "\x00",
        "%YAML 9\n---\n",
    ],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(text)
    assert errors_of(path)


def test_file_of_more_than_a_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("#" * 1_000_001)
    (error,) = errors_of(path)
    assert "found a file above 1 MB" in error


# Bandwidth-delay products by hand: 20 Mbit/s x 20 ms / 8 = 50 000 bytes;
# 1 Gbit/s x 90 ms / 8 = 11 250 000 bytes.
@pytest.mark.parametrize(
    ("rate", "delay_ms", "bdp"), [("20Mbps", 10, 50_000), ("1Gbps", 45, 11_250_000)]
)
def test_queue_of_one_bandwidth_delay_product_is_the_least(
    tmp_path: Path, rate: str, delay_ms: int, bdp: int
) -> None:
    common = f"rate_bps: {rate}, delay_ms: {delay_ms}, queue_bytes: "
    assert load_small(tmp_path, common + str(bdp)).links[1].forward.queue_bytes == bdp
    with pytest.raises(TopologyErrors, match=f"at least {bdp} "):
        load_small(tmp_path, common + str(bdp - 1))


def test_queue_must_hold_a_full_frame(tmp_path: Path) -> None:
    load_small(tmp_path, "rate_bps: 20Mbps, queue_bytes: 1518")
    with pytest.raises(TopologyErrors, match=r"at least 1518 \(one full frame\)"):
        load_small(tmp_path, "rate_bps: 20Mbps, queue_bytes: 1517")


def test_queue_left_out(tmp_path: Path) -> None:
    link = load_small(tmp_path, "rate_bps: 1Gbps, delay_ms: 45").links[1]
    assert link.forward.queue_bytes == link.backward.queue_bytes == 11_250_000
    link = load_small(tmp_path, "rate_bps: 20Mbps, delay_ms: 10").links[1]
    assert link.forward.queue_bytes == 150_000
