// Package eval measures a model on suites of problems: it samples responses, has a reward
// grade them, and turns the grades into comparable numbers: pass@1, avg@n, pass@k, maj@k,
// their confidence intervals, and paired differences between two models with their
// significance.
//
// In reading order:
//
//	suite.go       sets of problems, benchmarks by name, and where their files are
//	evaluate.go    sampling and grading what is missing
//	responses.go   every response, in memory and in a file that survives an interruption
//	score.go       what a suite's responses come to: pass@k, the answer that samples vote for
//	compare.go     two models on the same problems
//	table.go       text and Markdown
//
// The model is a sampler.Decoder and a tokenizer; nothing here depends on what
// computes it.
package eval
