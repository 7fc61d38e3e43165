#!/bin/sh
# Fetches the ECharts build that report pages carry. Apache ECharts is under the
# Apache License 2.0: see echarts.LICENSE and echarts.NOTICE.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$tmp" && npm pack --silent echarts@6.1.0 >/dev/null && tar xzf echarts-6.1.0.tgz)
echo "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5  $tmp/package/dist/echarts.common.min.js" | sha256sum -c --quiet
gzip -9 -n -c "$tmp/package/dist/echarts.common.min.js" > echarts.common.min.js.gz
cp "$tmp/package/LICENSE" echarts.LICENSE
cp "$tmp/package/NOTICE" echarts.NOTICE
