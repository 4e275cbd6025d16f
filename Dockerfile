# Builds the `trellis` binary, and two images with it: `worker`, and `trellis` for every other process.
#
# `.dockerignore` lists the sources, and the build copies all of them: for a new folder, add one line there. The registry and the target
# directory of Cargo are cache mounts of BuildKit, so a build after a change compiles only the crates of this repository again.
#
# Images are named by their exact version; docker-compose.yml explains how to pin them by digest too.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends pkg-config && rm -rf /var/lib/apt/lists/*
COPY . .
# Cargo compares modification times. A copied layer may be older than the target directory of an earlier build, so `touch` makes the sources newer.
# A cache mount is in no layer, so the same RUN copies the binary out of it. With `locked`, builds for other platforms wait until then.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=trellis-target,target=/target,sharing=locked \
    find . -type f -exec touch {} + \
    && CARGO_TARGET_DIR=/target cargo build --release --locked --package trellis \
    && cp /target/release/trellis /usr/local/bin/trellis

FROM debian:12.12-slim AS base
# wget is for the health checks.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates wget && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin trellis

# For workers (`--target worker`): programs and MCP servers are mostly written in Python or for Node. If yours need more, build your own image
# from this one.
FROM base AS worker
RUN apt-get update && apt-get install -y --no-install-recommends nodejs python3 && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/trellis /usr/local/bin/trellis
USER 10001
ENTRYPOINT ["/usr/local/bin/trellis"]
CMD ["worker"]

# A build without `--target` builds the last stage.
FROM base AS trellis
COPY --from=build /usr/local/bin/trellis /usr/local/bin/trellis
USER 10001
# The binary receives signals directly: the first one drains it, the second one ends it at once.
ENTRYPOINT ["/usr/local/bin/trellis"]
CMD ["--help"]
