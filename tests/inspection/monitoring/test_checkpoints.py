"""The checkpoints that `ticdc-source lag` reads, where nothing but folders is needed."""

from pathlib import Path

import pytest

from ticdc_source.errors import CheckpointError
from ticdc_source.inspection.monitoring.checkpoints import committed_in_checkpoint


@pytest.mark.parametrize("location", [str, Path.as_uri], ids=["path", "URI"])
@pytest.mark.parametrize(
    ("streams", "hint"),
    [
        ([], ""),
        (["shop/stream"], "; {0}/stream has one: give that of the stream"),
        (["shop/a", "shop/b"], "; {0}/a, {0}/b have one: give that of the stream"),
    ],
)
def test_a_folder_around_a_checkpoint_names_it(
    tmp_path: Path, location: type[str], streams: list[str], hint: str
) -> None:
    """`ticdc-lakehouse sync` keeps the stream's checkpoint in a folder of its own, beside what else it remembers."""
    (tmp_path / "shop" / "state" / "0").mkdir(parents=True)
    for stream in streams:
        (tmp_path / stream / "offsets").mkdir(parents=True)
    given = location(tmp_path / "shop")

    with pytest.raises(CheckpointError) as caught:
        committed_in_checkpoint(given, {"tidb-shop"})

    reason = "it has no folder 'offsets', as the checkpointLocation of a stream has"
    assert str(caught.value) == f"The checkpoint {given} cannot be read: {reason}{hint.format(given)}"
