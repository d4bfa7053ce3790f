"""Files that change at once."""

import os
import stat

import pytest

from optinc_hw._files import replacing, write_text


def test_a_new_file_is_readable_and_an_old_one_keeps_its_mode(tmp_path):
    path = tmp_path / "chip.yaml"
    write_text(path, "a: ä\n")
    assert path.read_bytes() == "a: ä\n".encode()
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o640)
        write_text(path, "b\n")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [found.name for found in tmp_path.iterdir()] == ["chip.yaml"]


@pytest.mark.parametrize("error", [ValueError("half way"), KeyboardInterrupt()])
def test_after_an_exception_the_old_content_is_whole_and_nothing_is_left(tmp_path, error):
    path = tmp_path / "run.nc"
    path.write_text("old")

    def half_way():
        with replacing(path) as part:
            assert part.suffix == ".nc"
            part.write_text("half of the new")
            assert path.read_text() == "old"
            raise error

    with pytest.raises(type(error)):
        half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "nowhere" / "chip.yaml", "")
