# syntax=docker/dockerfile:1
# The `trellis` binary and nothing else, and a second image for workers. Dependencies are a layer of their own, so that a change of
# our sources does not rebuild them.
#
# Images are named by their exact version; docker-compose.yml says how to pin them by digest as well.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends pkg-config && rm -rf /var/lib/apt/lists/*

# The manifests with empty sources: this builds the dependencies.
COPY Cargo.toml Cargo.lock ./
COPY shared/Cargo.toml shared/Cargo.toml
COPY coordinator/Cargo.toml coordinator/Cargo.toml
COPY worker/Cargo.toml worker/Cargo.toml
COPY gateway/Cargo.toml gateway/Cargo.toml
COPY cli/Cargo.toml cli/Cargo.toml
COPY tests/Cargo.toml tests/Cargo.toml
RUN mkdir -p shared/src coordinator/src worker/src gateway/src cli/src tests/src tests/it tests/benches \
    && touch shared/src/lib.rs coordinator/src/lib.rs worker/src/lib.rs gateway/src/lib.rs tests/src/lib.rs tests/it/main.rs \
    && echo 'fn main() {}' | tee cli/src/main.rs tests/benches/core.rs > /dev/null \
    && cargo build --release --locked --package trellis

COPY shared shared
COPY coordinator coordinator
COPY worker worker
COPY gateway gateway
COPY cli cli
# Cargo compares modification times: our sources must be newer than the empty ones.
RUN find shared coordinator worker gateway cli -name '*.rs' -exec touch {} + \
    && cargo build --release --locked --package trellis

FROM debian:12.12-slim AS base
# wget is for the health checks.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates wget && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin trellis

# For workers (`--target worker`): agents that are programs, and MCP servers, are mostly written in Python or for Node. What else yours need, add in an
# image of your own that begins with this one.
FROM base AS worker
RUN apt-get update && apt-get install -y --no-install-recommends nodejs python3 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/release/trellis /usr/local/bin/trellis
USER 10001
ENTRYPOINT ["/usr/local/bin/trellis"]
CMD ["worker"]

# The last stage is what a build makes that names none.
FROM base AS trellis
COPY --from=build /src/target/release/trellis /usr/local/bin/trellis
USER 10001
# Signals go to the binary directly: the first one drains, the second one ends it at once.
ENTRYPOINT ["/usr/local/bin/trellis"]
CMD ["--help"]
