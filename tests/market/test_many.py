"""Files decoded side by side are the files decoded one by one."""

from __future__ import annotations

from pathlib import Path

from foxhunt_assets.contracts.instruments import CONTRACTS
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import snapshots
from foxhunt_assets.market.many import decode_many
from tests.market import made_dbn as made

ES = CONTRACTS["ES"]
T0 = made.ns("2024-03-01T15:00:00")


def test_results_are_identical_and_a_bad_file_stops_no_other(tmp_path: Path) -> None:
    jobs = []
    for n in range(3):
        records = [made.mbp(T0 + i * made.MS, 20_000 + n + i % 5, 20_001 + n + i % 5) for i in range(300)]
        out = tmp_path / f"out{n}"
        out.mkdir()
        jobs.append((made.write_mbp(tmp_path / f"{n}.dbn.zst", records), out))
    jobs[1][0].write_bytes(jobs[1][0].read_bytes()[:-40])
    together = decode_many(jobs, ES, grid_ms=0, processes=2)
    assert isinstance(together[1], BadInput) and "1.dbn.zst" in str(together[1])
    for n in (0, 2):
        alone = tmp_path / f"alone{n}"
        alone.mkdir()
        assert snapshots.decode(jobs[n][0], alone, ES, 0) == together[n]
        assert (alone / "snapshots.arrow").read_bytes() == (jobs[n][1] / "snapshots.arrow").read_bytes()
