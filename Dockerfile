# The command line in a container:
#   docker build -t driftwise .
#   docker run --rm -v "$PWD:/work" driftwise detect last-year this-year --out drift
# deploy/Dockerfile is the service.
FROM python:3.12-slim

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY src /src/src
# The CPU build of torch is a tenth of the size of the usual one. For GPUs, leave the index out.
ARG EXTRAS=imagenet,tables
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c /src/constraints.txt "/src[${EXTRAS}]" && rm -rf /src

# Results belong to the user who runs the container (docker run --user "$(id -u):$(id -g)").
ENV HOME=/tmp DRIFTWISE_CACHE=/tmp/driftwise DRIFTWISE_DATA=/data MPLCONFIGDIR=/tmp/matplotlib
RUN useradd --uid 10001 driftwise
USER 10001
WORKDIR /work
ENTRYPOINT ["driftwise"]
CMD ["--help"]
