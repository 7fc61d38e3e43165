// Package report turns run folders into one page that shows what training did:
// whether the policy learned, whether it was stable, where the time went, how the
// exponent p of PMPO behaved, and what the responses look like.
//
// The page is a single file that loads nothing from the network. Go code describes the charts with go-echarts;
// Apache ECharts, which is embedded in the page, draws them. The page has a light and a dark theme, and the
// reader can save every chart as PNG, SVG or CSV.
//
// The package reads run folders (metrics.jsonl, run.toml, rollouts/, checkpoints/)
// and writes pages and TensorBoard event files. It uses no cgo.
package report
