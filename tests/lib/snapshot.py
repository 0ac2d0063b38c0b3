# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a test guest: RAM and devices, in a qcow2 file that QEMU itself makes."""

from guest import wait_for

SIZE = 1 << 30


class Snapshots:
    def __init__(self, guest):
        self.g = guest
        self.jobs = 0
        path = str(guest.dir / "snapshots.qcow2")
        self._job("blockdev-create", options={"driver": "file", "filename": path, "size": 0})
        guest.qmp.command("blockdev-add", **{"driver": "file", "filename": path, "node-name": "snap-file"})
        self._job("blockdev-create", options={"driver": "qcow2", "file": "snap-file", "size": SIZE})
        guest.qmp.command("blockdev-add", **{"driver": "qcow2", "file": "snap-file", "node-name": "snap"})

    def _job(self, command, **args):
        self.jobs += 1
        name = f"job{self.jobs}"
        self.g.qmp.command(command, **{"job-id": name, **args})

        def ended():
            job = [j for j in self.g.qmp.command("query-jobs") if j["id"] == name][0]
            return job if job["status"] == "concluded" else None
        job = wait_for(f"QEMU's job {command}", ended, 120)
        self.g.qmp.command("job-dismiss", id=name)
        assert not job.get("error"), f"{command}: {job['error']}"

    def save(self, tag):
        self._job("snapshot-save", tag=tag, vmstate="snap", devices=["snap"])

    def load(self, tag):
        """The guest runs on from there."""
        self._job("snapshot-load", tag=tag, vmstate="snap", devices=["snap"])
        self.g.qmp.command("cont")
        wait_for("it runs", lambda: self.g.status() == "running", 20)
