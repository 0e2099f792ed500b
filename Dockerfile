# harmonium on a CPU: docker build --tag harmonium . && docker run --rm --volume "$PWD:/data" harmonium complete facts.csv
# Files are read and written in /data, as user 1000: give --user "$(id -u):$(id -g)" if yours is another one.

FROM python:3.11-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# torch first, from the index of builds without CUDA; then the package with what a server, RDF, Neo4j and the Hub need
RUN python -m venv /opt/harmonium \
    && /opt/harmonium/bin/python -m pip install --no-cache-dir --constraint constraints.txt \
        --extra-index-url https://download.pytorch.org/whl/cpu torch numpy \
    && /opt/harmonium/bin/python -m pip install --no-cache-dir --constraint constraints.txt '.[rdf,serve,neo4j,hub]'

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 harmonium && install --directory --owner 1000 /data
COPY --from=build /opt/harmonium /opt/harmonium
ENV PATH=/opt/harmonium/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HARMONIUM_CACHE=/tmp/harmonium \
    MPLCONFIGDIR=/tmp/matplotlib
USER 1000
WORKDIR /data
ENTRYPOINT ["harmonium"]
CMD ["--help"]
