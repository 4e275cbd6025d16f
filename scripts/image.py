#!/usr/bin/env python3
"""Writes a container image as an OCI archive, without a container engine: one layer with the static binary, CA certificates and a user.

The same input gives the same bytes. scripts/package calls it; `skopeo copy oci-archive:FILE docker://…` and `podman load` read it.
Standard library only.
"""

import argparse
import gzip
import hashlib
import io
import json
import tarfile
from datetime import datetime, timezone

USER = 10001
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\ntrellis:x:{USER}:{USER}:trellis:/:/sbin/nologin\n"
GROUP = f"root:x:0:\ntrellis:x:{USER}:\n"


def member(archive, name, time, content=None, mode=0o644):
    """Adds a file, or a directory if there is no content."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = time, mode
    if content is None:
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))


def layer(files, time):
    """Returns a tar archive of the files, by their paths, with their directories."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        made = set()
        for path, (content, mode) in sorted(files.items()):
            parts = path.split("/")
            for depth in range(1, len(parts)):
                directory = "/".join(parts[:depth])
                if directory not in made:
                    made.add(directory)
                    member(archive, directory, time, mode=0o755)
            member(archive, path, time, content, mode)
    return written.getvalue()


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def image(binary, certificates, version, machine, time):
    """Returns the files of an OCI image layout, by their paths."""
    files = {
        "usr/local/bin/trellis": (binary, 0o755),
        "etc/passwd": (PASSWD.encode(), 0o644),
        "etc/group": (GROUP.encode(), 0o644),
        "tmp": (None, 0o1777),
    }
    if certificates is not None:
        files["etc/ssl/certs/ca-certificates.crt"] = (certificates, 0o644)
    plain = layer(files, time)
    packed = gzip.compress(plain, compresslevel=9, mtime=0)
    created = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = compact({
        "architecture": MACHINES[machine],
        "os": "linux",
        "created": created,
        "config": {
            "User": str(USER),
            "Env": ["PATH=/usr/local/bin"],
            "Entrypoint": ["/usr/local/bin/trellis"],
            "Cmd": ["--help"],
            "Labels": {"org.opencontainers.image.title": "trellis", "org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
        "history": [{"created": created, "created_by": "scripts/image.py"}],
    })
    manifest = compact({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(packed), "size": len(packed)}],
    })
    index = compact({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(manifest),
            "size": len(manifest),
            "platform": {"architecture": MACHINES[machine], "os": "linux"},
            "annotations": {"org.opencontainers.image.ref.name": version},
        }],
    })
    blobs = {"blobs/sha256/" + digest(blob).split(":")[1]: blob for blob in (config, manifest, packed)}
    return {"oci-layout": compact({"imageLayoutVersion": "1.0.0"}), "index.json": index, **blobs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--machine", required=True, choices=sorted(MACHINES))
    parser.add_argument("--time", required=True, type=int, help="the time of every file, in seconds since 1970")
    parser.add_argument("--certificates", help="a file of CA certificates (PEM)")
    parser.add_argument("archive")
    arguments = parser.parse_args()
    with open(arguments.binary, "rb") as file:
        binary = file.read()
    certificates = None
    if arguments.certificates:
        with open(arguments.certificates, "rb") as file:
            certificates = file.read()
    files = image(binary, certificates, arguments.version, arguments.machine, arguments.time)
    files = {path: (content, 0o644) for path, content in files.items()}
    with open(arguments.archive, "wb") as file:
        file.write(layer(files, arguments.time))


if __name__ == "__main__":
    main()
