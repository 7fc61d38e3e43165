# docker build -t onering . && docker run --rm onering train --objective=pmpo
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY . .
RUN go build -trimpath -o /onering ./cmd/onering

FROM python:3.12-slim-bookworm
COPY --from=build /onering /usr/local/bin/onering
COPY --from=build /src/runtime/provision/pip.go /tmp/pip.go
RUN pip install --no-cache-dir "onnxruntime==$(sed -n 's/^const pinned = "\(.*\)"/\1/p' /tmp/pip.go)"
ENTRYPOINT ["onering"]
