// Package report turns run folders into one page that shows what training did:
// whether the policy learned, whether it was stable, where the time went, what p
// did, and what the responses look like.
//
// The page is a single file that fetches nothing. Its charts are described in Go
// with go-echarts and drawn by Apache ECharts, which is part of the page. It
// follows the reader's choice of light or dark, and every chart can be taken out
// as PNG, SVG or CSV.
//
// The package reads run folders (metrics.jsonl, run.toml, rollouts/, checkpoints/)
// and writes pages and TensorBoard event files. It uses no cgo.
package report
